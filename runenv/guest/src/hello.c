/* The first word: what the host says the env is, and what the guest answers about it. */
#include "loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void copy_path(struct span fields, int tag, char out[PATH_MAX]) {
    if (field_path(fields, tag, out)) out[0] = 0;
}

static const char *find_shell(void) {
    return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : access("/bin/sh", X_OK) == 0 ? "/bin/sh" : "";
}

/* The guest's own environment, as the engine or the host gave it, with the configured variables over it. */
static void set_environ(struct span fields, const char *fallback_home) {
    int tag;
    struct span value;
    while (field_next(&fields, &tag, &value)) {
        if (tag != T_ENV) continue;
        char *text = xmalloc(value.length + 1);
        memcpy(text, value.at, value.length);
        text[value.length] = 0;
        putenv(text);
    }
    const char *home = getenv("HOME");
    if ((!home || !strcmp(home, "/") || access(home, W_OK)) && fallback_home[0]) {
        mkdir(fallback_home, 0700);
        setenv("HOME", fallback_home, 1);
    }
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0);
    guest.environ = environ;
}

void say_hello(struct span fields) {
    char text[PATH_MAX + 200], home[PATH_MAX];
    if (!fields_valid(fields)) breach("the host sent a damaged hello");
    int64_t version = field_number(fields, T_VERSION, 0);
    if (version != PROTOCOL_VERSION) {
        snprintf(text, sizeof text, "the guest speaks version %d of the protocol, the host %lld", PROTOCOL_VERSION, (long long)version);
        breach(text);
    }
    copy_path(fields, T_WORKDIR, guest.workdir);
    copy_path(fields, T_SPILL_DIR, guest.spill_dir);
    copy_path(fields, T_SCRATCH, guest.scratch);
    copy_path(fields, T_HOME, home);
    guest.confine = field_number(fields, T_FLAGS, 0) & F_CONFINE;
    guest.spill_quota = field_number(fields, T_SPILL_QUOTA, 0);
    for (size_t n = strlen(guest.workdir); n > 1 && guest.workdir[n - 1] == '/';) guest.workdir[--n] = 0;
    struct stat st;
    if (!realpath(guest.workdir, guest.real_workdir) || stat(guest.workdir, &st) || !S_ISDIR(st.st_mode)) {
        snprintf(text, sizeof text, "the working folder %s cannot be used: %s", guest.workdir, strerror(errno ? errno : ENOTDIR));
        breach(text);
    }
    guest.spilled = mmap(NULL, sizeof *guest.spilled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guest.spilled == MAP_FAILED || (guest.spill_dir[0] && mkdir(guest.spill_dir, 0700))) guest.spill_dir[0] = 0;
    set_environ(fields, home);
    strcpy(guest.shell, find_shell());
    struct builder b = {0};
    build_number(&b, T_VERSION, PROTOCOL_VERSION);
    build_number(&b, T_PID, getpid());
    build_number(&b, T_UID, geteuid());
    build_number(&b, T_GID, getegid());
    build_bytes(&b, T_WORKDIR, guest.real_workdir, strlen(guest.real_workdir));
    const char *final_home = getenv("HOME");
    if (final_home) build_bytes(&b, T_HOME, final_home, strlen(final_home));
    if (guest.shell[0]) build_bytes(&b, T_SHELL, guest.shell, strlen(guest.shell));
    if (guest.spill_dir[0]) build_bytes(&b, T_SPILL_DIR, guest.spill_dir, strlen(guest.spill_dir));
    send_fields(0, HELLO, &b);
}
