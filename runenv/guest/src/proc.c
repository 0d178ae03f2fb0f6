/* Process trees, and the kernel's counters for memory and processes.
 *
 * A tree is found through /proc/<pid>/task/<tid>/children, level by level. A kernel without that file gives the parent
 * of every process in /proc/<pid>/stat instead. Either list may miss a process that is being forked while it is read,
 * so callers repeat until nothing is left. A process is signalled with its whole process group, which the kernel does
 * for all members at one time, also those being forked: one by one, four fork bombs of 1,024 processes at once outran
 * their killers for over 10 s on 2 cores (2026-11-28). A command starts in a session of its own, and a group lies
 * within one session, so nothing else is ever in the group of a descendant. */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pids { pid_t *list; size_t count, capacity; };

static void add(struct pids *p, pid_t pid) {
    if (p->count == p->capacity) {
        p->capacity = p->capacity ? p->capacity * 2 : 64;
        p->list = xrealloc(p->list, p->capacity * sizeof *p->list);
    }
    p->list[p->count++] = pid;
}

static size_t read_file(const char *path, char *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* Adds the children of one task. */
static void add_children(struct pids *p, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    char text[1024];
    long pid = 0;
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] >= '0' && text[i] <= '9') pid = pid * 10 + (text[i] - '0');
            else if (pid) {
                add(p, (pid_t)pid);
                pid = 0;
            }
        }
    if (pid) add(p, (pid_t)pid);
    close(fd);
}

static void children_of(struct pids *p, pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks) return;
    for (struct dirent *e; (e = readdir(tasks));) {
        if (e->d_name[0] == '.') continue;
        char file[64 + NAME_MAX + 16];
        snprintf(file, sizeof file, "%s/%s/children", path, e->d_name);
        add_children(p, file);
    }
    closedir(tasks);
}

static pid_t parent_of(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!read_file(path, text, sizeof text)) return -1;
    char *end = strrchr(text, ')'); /* the name before it may hold anything */
    int parent;
    return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

/* Adds the children of pid by reading the parent of every process. */
static void children_by_scan(struct pids *p, pid_t of) {
    DIR *proc = opendir("/proc");
    if (!proc) return;
    for (struct dirent *e; (e = readdir(proc));) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && parent_of(pid) == of) add(p, pid);
    }
    closedir(proc);
}

static bool has_children_files(void) {
    static int known = -1;
    if (known < 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        known = access(path, R_OK) == 0;
    }
    return known;
}

static bool spared(pid_t pid, const pid_t *spare, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (spare[i] == pid) return true;
    return false;
}

/* A stopped process acts on a signal once it goes on. */
static bool send(pid_t pid, int signal) {
    bool sent = kill(pid, signal) == 0;
    if (sent && signal != SIGKILL) kill(pid, SIGCONT);
    return sent;
}

int kill_descendants(pid_t root, int signal, const pid_t *spare, size_t spare_count) {
    struct pids found = {0};
    void (*children)(struct pids *, pid_t) = has_children_files() ? children_of : children_by_scan;
    children(&found, root);
    int killed = 0;
    pid_t own = getpgrp(), last = 0;
    for (size_t i = 0; i < found.count; i++) {
        pid_t pid = found.list[i], group;
        if (spared(pid, spare, spare_count)) continue;
        children(&found, pid);
        if ((group = getpgid(pid)) > 1 && group != own && group != last) {
            last = group;
            send(-group, signal);
        }
        if (send(pid, signal)) killed++;
    }
    free(found.list);
    return killed;
}

/* The file that counts out-of-memory kills of this process's cgroup. In a container its own cgroup is the root. */
int open_oom_events(void) {
    static const char *const in_container[] = {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"};
    char text[4096];
    if (read_file("/proc/self/cgroup", text, sizeof text))
        for (char *line = text, *next; line && *line; line = next) {
            next = memchr(line, '\n', strlen(line));
            if (next) *next++ = 0;
            char path[PATH_MAX];
            if (!strncmp(line, "0::/", 4)) snprintf(path, sizeof path, "/sys/fs/cgroup/%s/memory.events", line + 4);
            else if (strstr(line, ":memory:/"))
                snprintf(path, sizeof path, "/sys/fs/cgroup/memory/%s/memory.oom_control", strstr(line, ":memory:/") + 9);
            else continue;
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd >= 0) return fd;
        }
    for (size_t i = 0; i < 2; i++) {
        int fd = open(in_container[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0) return fd;
    }
    return -1;
}

int64_t oom_kills(void) {
    char text[512];
    ssize_t n = guest.oom_events < 0 ? -1 : pread(guest.oom_events, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = strstr(text, "oom_kill ");
    return at ? strtoll(at + 9, NULL, 10) : 0;
}

void describe_fork_failure(int error, char *out, size_t size) {
    char limit[32] = "";
    if (error == EAGAIN && !read_file("/sys/fs/cgroup/pids.max", limit, sizeof limit))
        read_file("/sys/fs/cgroup/pids/pids.max", limit, sizeof limit);
    char *end = memchr(limit, '\n', sizeof limit);
    if (end) *end = 0;
    if (error == EAGAIN)
        snprintf(out, size, "runenv: cannot start a process: the pids limit%s%s is reached\n", limit[0] ? " of " : "", limit);
    else snprintf(out, size, "runenv: cannot start a process: %s\n", strerror(error));
}
