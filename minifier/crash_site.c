/* Writes down where a process dies of a signal: a line a frame, the innermost one first.
 *
 * A line: file of the library, offset of the instruction in it, symbol; tabs between them. Offsets
 * of callers point into the call, and not behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FRAMES = 64, OWN = 2 /* this function, and what the kernel returns to */ };

static int out = -1;

static void note_site(int number) {
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    for (int i = OWN; i < n; i++) {
        Dl_info found;
        if (dladdr(frames[i], &found) && found.dli_fname) {
            const char *at = (const char *)frames[i] - (i > OWN);
            dprintf(out, "%s\t%lx\t%s\n", found.dli_fname,
                    (unsigned long)(at - (const char *)found.dli_fbase),
                    found.dli_sname ? found.dli_sname : "");
        }
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Returns 0 if the file can be written. */
int watch_crashes(const char *path) {
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    void *frame[1];
    struct sigaction action = {.sa_handler = note_site, .sa_flags = SA_ONSTACK | SA_NODEFER};
    const stack_t stack = {.ss_sp = malloc(1 << 17), .ss_size = 1 << 17}; /* for overflows */
    out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0)
        return 1;
    backtrace(frame, 1); /* loads what it needs now, and not in the handler */
    sigaltstack(&stack, NULL);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    return 0;
}
