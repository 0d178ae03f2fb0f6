/* Starting one command: its folder, its environment, its program, its three streams.
 *
 * The child shares the supervisor's memory until it runs the program (CLONE_VFORK), so the reason why it cannot is
 * simply left in a variable, and nothing is copied. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LONG_SCRIPT = 120 * 1000,        /* one argument of the kernel's 128 KiB */
    STACK = 64 * 1024,
};

struct start { char **argv, **envp; const char *path; int in, out, err, cwd, error; bool not_found; };

/* The file that `name` would be in the next folder of a PATH; false at its end. */
static bool next_in_path(const char **at, const char *name, char file[PATH_MAX]) {
    if (!*at) return false;
    const char *end = strchrnul(*at, ':');
    int n = snprintf(file, PATH_MAX, "%.*s%s%s", (int)(end - *at), *at, end > *at ? "/" : "", name);
    if (n >= PATH_MAX) file[0] = 0;
    *at = *end ? end + 1 : NULL;
    return true;
}

/* Returns only when the program cannot be run. The memory is shared with the supervisor, so `error` is set last. */
static void exec_in_path(struct start *s) {
    const char *name = s->argv[0];
    char file[PATH_MAX];
    int error = ENOENT;
    if (strchrnul(name, '/')[0]) {
        execve(name, s->argv, s->envp);
        error = errno;
        s->not_found = error == ENOENT && access(name, F_OK) != 0;
        s->error = error;
        return;
    }
    for (const char *at = s->path; *name && next_in_path(&at, name, file);) {
        execve(file, s->argv, s->envp);
        if (errno == ENOENT || errno == ENOTDIR) continue;
        error = errno;
        if (errno != EACCES) break;
    }
    /* A file that is there was refused for its interpreter. */
    s->not_found = error == ENOENT;
    for (const char *at = s->path; s->not_found && *name && next_in_path(&at, name, file);)
        if (access(file, X_OK) == 0) s->not_found = false;
    s->error = error;
}

static int child_main(void *arg) {
    struct start *s = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    if (fchdir(s->cwd) != 0) {
        s->error = -errno;
        _exit(0);
    }
    /* The three are above 2, so none is overwritten before it is used. */
    if (dup2(s->in, 0) < 0 || dup2(s->out, 1) < 0 || dup2(s->err, 2) < 0) _exit(0);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = guest.file_limit;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    exec_in_path(s);
    _exit(0);
}

/* What is made for one start and freed after it. */
static struct queue memory;

static void *take_memory(size_t size) {
    struct chunk *c = chunk_new(size);
    queue_push(&memory, c);
    return c->data;
}

static char *copy_string(struct span s) {
    char *text = take_memory(s.length + 1);
    memcpy(text, s.at, s.length);
    text[s.length] = 0;
    return text;
}

/* The base environment with the call's variables over it. */
static char **merge_environ(struct span fields) {
    size_t count = 0, base;
    while (guest.environ[count]) count++;
    base = count;
    int tag;
    struct span rest = fields, value;
    while (field_next(&rest, &tag, &value)) count += tag == T_ENV;
    if (count == base) return guest.environ;
    char **merged = take_memory((count + 1) * sizeof *merged);
    memcpy(merged, guest.environ, base * sizeof *merged);
    for (size_t n = base; field_next(&fields, &tag, &value);) {
        if (tag != T_ENV) continue;
        char *text = copy_string(value);
        size_t name = (size_t)(strchrnul(text, '=') - text) + 1, i = 0;
        while (i < n && strncmp(merged[i], text, name)) i++;
        merged[i] = text;
        if (i == n) n++;
        merged[n] = NULL;
    }
    return merged;
}

static const char *variable(char **environ, const char *name) {
    size_t length = strlen(name);
    for (; *environ; environ++)
        if (!strncmp(*environ, name, length) && (*environ)[length] == '=') return *environ + length + 1;
    return NULL;
}

/* A script too long for one argument is given to the shell as a file in memory. */
static char *script_file(struct span script, int *fd) {
    *fd = (int)syscall(SYS_memfd_create, "script", 0);
    if (*fd < 0) return NULL;
    for (size_t done = 0; done < script.length;) {
        ssize_t n = write(*fd, script.at + done, script.length - done);
        if (n <= 0) return NULL;
        done += (size_t)n;
    }
    char *path = take_memory(32);
    snprintf(path, 32, "/proc/self/fd/%d", *fd);
    return path;
}

static char **make_argv(struct span fields, int *script) {
    struct span value, rest = fields;
    if (field_bytes(fields, T_SHELL, &value)) {
        char **argv = take_memory(4 * sizeof *argv);
        argv[0] = guest.shell;
        char *file = value.length > LONG_SCRIPT ? script_file(value, script) : NULL;
        argv[1] = file ? file : (char *)"-c";
        argv[2] = file ? NULL : copy_string(value);
        argv[3] = NULL;
        return argv;
    }
    int tag;
    size_t count = 0;
    while (field_next(&rest, &tag, &value)) count += tag == T_ARG;
    char **argv = take_memory((count + 2) * sizeof *argv);
    count = 0;
    for (rest = fields; field_next(&rest, &tag, &value);)
        if (tag == T_ARG) argv[count++] = copy_string(value);
    if (!count) argv[count++] = (char *)"";
    argv[count] = NULL;
    return argv;
}

/* Opens the folder to run in; -1 with the reason in `text`. */
static int open_cwd(struct span fields, char text[MESSAGE]) {
    char path[PATH_MAX];
    struct span value;
    struct place place;
    int fd = -1, error = 0;
    if (field_bytes(fields, T_CWD, &value)) error = field_path(fields, T_CWD, path);
    else strcpy(path, guest.workdir);
    if (!error && !(error = place_open(path, FOLLOW, &place))) {
        fd = openat(place.folder, place.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        error = errno;
        place_close(&place);
    }
    if (fd < 0) snprintf(text, MESSAGE, "runenv: cannot run in the folder %s: %s\n", path, error == OUTSIDE ? "it is outside the workspace" : strerror(error));
    return fd;
}

static int open_pipes(struct span fields, int in[2], int out[2], int err[2]) {
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) return errno;
    if (field_number(fields, T_FLAGS, 0) & F_HAS_STDIN) return pipe2(in, O_CLOEXEC) ? errno : 0;
    if ((in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) return 0;
    if (pipe2(in, O_CLOEXEC)) return errno;
    close(in[1]);
    in[1] = -1;
    return 0;
}

static void explain(struct command *c, const struct start *start, int fork_error) {
    const char *name = start->argv[0];
    c->exit_code = 126;
    if (fork_error) describe_fork_failure(fork_error, c->message, sizeof c->message);
    else if (start->error < 0)
        snprintf(c->message, sizeof c->message, "runenv: cannot enter the folder to run in: %s\n", strerror(-start->error));
    else if (start->not_found) {
        c->exit_code = 127;
        snprintf(c->message, sizeof c->message, "%.4000s: command not found\n", name);
    } else if (start->error == ENOENT) snprintf(c->message, sizeof c->message, "%.4000s: bad interpreter: %s\n", name, strerror(ENOENT));
    else snprintf(c->message, sizeof c->message, "%.4000s: %s\n", name, strerror(start->error));
}

void command_start(struct command *c, struct span fields) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, error;
    struct span shell;
    *c = (struct command){.pid = -1, .in = -1, .out = -1, .err = -1, .exit_code = 126};
    if (field_bytes(fields, T_SHELL, &shell) && !guest.shell[0]) {
        c->exit_code = 127;
        strcpy(c->message, "runenv: this image has no shell (/bin/bash or /bin/sh): give the command as a list of arguments\n");
        return;
    }
    int cwd = open_cwd(fields, c->message);
    if (cwd < 0) return;
    if ((error = open_pipes(fields, in, out, err))) {
        describe_fork_failure(error, c->message, sizeof c->message);
        int opened[] = {in[0], in[1], out[0], out[1], err[0], err[1], cwd};
        for (size_t i = 0; i < sizeof opened / sizeof *opened; i++)
            if (opened[i] >= 0) close(opened[i]);
        return;
    }
    struct start start = {.in = in[0], .out = out[1], .err = err[1], .cwd = cwd};
    int script = -1;
    start.argv = make_argv(fields, &script);
    start.envp = merge_environ(fields);
    start.path = variable(start.envp, "PATH");
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    c->pid = stack == MAP_FAILED ? -1 : clone(child_main, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &start);
    error = c->pid < 0 ? errno : 0;
    munmap(stack, STACK);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    close(cwd);
    if (script >= 0) close(script);
    c->in = in[1];
    c->out = out[0];
    c->err = err[0];
    if (error || start.error) {
        if (!error) waitpid(c->pid, NULL, 0);
        explain(c, &start, error);
        c->pid = -1;
    }
    queue_clear(&memory);
}
