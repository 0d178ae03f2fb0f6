/* What a supervisor and the start of its command share. */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include "guest.h"

enum { MESSAGE = PATH_MAX + 256 };

struct command {
    pid_t pid;                       /* -1: it did not start, for the reason in `message` */
    int in, out, err;                /* our ends of its streams; `in` is -1 when it has no input */
    int exit_code;                   /* what a shell would give for that reason: 126 or 127 */
    char message[MESSAGE];
};
void command_start(struct command *command, struct span fields);

#endif
