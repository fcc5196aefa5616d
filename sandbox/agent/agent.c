/*
 * The process with id 1 of every sandbox container.
 *
 *   agent hold DIR...   makes the directories, says hello, keeps the container (and with it the workspace
 *                       volume and the network namespace) alive until its stdin ends.
 *   agent run DIR...    says hello, reads one request from stdin, runs it, answers in frames, ends.
 *
 * Why a program of our own: only this process holds the container's stdin and stdout, so nothing that a
 * command prints can be taken for a frame; it is there when the command ends, and kills and reaps what the
 * command left behind before it says that the action is over; and it ends when its stdin does, so a client
 * that dies takes its containers with it without any state. Process 1 of a namespace cannot be killed or
 * stopped from within.
 *
 * The end of a command is that of Python's subprocess.run(capture_output=True, timeout=...): both streams
 * are at end of file and the shell was reaped, or the deadline.
 *
 * The wire format stands in sandbox/frames.py; AGENT_PROTOCOL changes with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "filter.h"

#ifndef AGENT_PROTOCOL
#error "AGENT_PROTOCOL comes from the build: it is also the image's label"
#endif

#define MAX_SCRIPT_BYTES (16u << 20)
#define MAX_ENVIRONMENT_BYTES (64u << 10)
#define MAX_ENVIRONMENT_ENTRIES 256
#define MAX_CAPTURE_BYTES (16u << 20)
/* The kernel's MAX_ARG_STRLEN: one argument with its terminating NUL. */
#define MAX_ARGUMENT_BYTES (128u << 10)
#define READ_BYTES (64u << 10)
#define CGROUP_FILE_BYTES 4096
/* The client reads at once; an answer that nobody takes for this long has no reader any more. */
#define ANSWER_SECONDS 60
#define SCRIPT_FD 3
/* Above the descriptors that the command gets. */
#define LEAST_REPORT_FD 10

enum frame {
    FRAME_HELLO = 'H',
    FRAME_STARTED = 'S',
    FRAME_CGROUP_BEFORE = 'B',
    FRAME_CGROUP_AFTER = 'A',
    FRAME_STDOUT_HEAD = 'o',
    FRAME_STDOUT_TAIL = 'O',
    FRAME_STDERR_HEAD = 'e',
    FRAME_STDERR_TAIL = 'E',
    FRAME_RESULT = 'R',
    FRAME_FAILURE = 'X',
    FRAME_END = 'Z',
};

enum ending { ENDED_ITSELF = 0, ENDED_BY_DEADLINE = 1, ENDED_BY_OUTPUT = 2 };

static const char *const CGROUP_FILES[] = {
    /* version 2 */
    "/sys/fs/cgroup/memory.peak",
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/cpu.stat",
    "/sys/fs/cgroup/pids.events",
    /* version 1 */
    "/sys/fs/cgroup/memory/memory.max_usage_in_bytes",
    "/sys/fs/cgroup/memory/memory.oom_control",
    "/sys/fs/cgroup/cpu/cpu.stat",
    "/sys/fs/cgroup/cpuacct/cpuacct.usage",
    "/sys/fs/cgroup/pids/pids.events",
};

struct request {
    uint32_t timeout_ms;
    uint32_t capture_bytes;
    uint64_t output_limit_bytes;
    char *environment[MAX_ENVIRONMENT_ENTRIES + 1];
    char *script;
    size_t script_bytes;
};

/* ---- writing ------------------------------------------------------------------------------------- */

static void write_all(const void *data, size_t length) {
    const char *at = data;
    while (length) {
        ssize_t written = write(STDOUT_FILENO, at, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) _exit(81);
        at += written;
        length -= (size_t)written;
    }
}

static unsigned char *put(unsigned char *at, uint64_t value, int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) *at++ = (unsigned char)(value >> shift);
    return at;
}

static void frame_start(enum frame type, size_t length) {
    unsigned char header[5];
    header[0] = (unsigned char)type;
    put(header + 1, length, 4);
    write_all(header, sizeof header);
}

static void frame(enum frame type, const void *payload, size_t length) {
    frame_start(type, length);
    write_all(payload, length);
}

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) length = 0;
    if ((size_t)length >= sizeof text) length = sizeof text - 1;
    frame(FRAME_FAILURE, text, (size_t)length);
    _exit(80);
}

static void hello(const char *role) {
    char text[64];
    int length = snprintf(text, sizeof text, "recount-agent %d %s", AGENT_PROTOCOL, role);
    frame(FRAME_HELLO, text, (size_t)length);
}

static void cgroup_frames(enum frame type) {
    for (size_t i = 0; i < sizeof CGROUP_FILES / sizeof *CGROUP_FILES; i++) {
        char content[CGROUP_FILE_BYTES];
        int fd = open(CGROUP_FILES[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ssize_t length = read(fd, content, sizeof content);
        close(fd);
        if (length <= 0) continue;
        size_t name = strlen(CGROUP_FILES[i]) + 1;
        frame_start(type, name + (size_t)length);
        write_all(CGROUP_FILES[i], name);
        write_all(content, (size_t)length);
    }
}

/* ---- reading the request ------------------------------------------------------------------------- */

/* End of file here is a client that went away before it asked for anything: nothing to answer. */
static void read_all(void *data, size_t length) {
    char *at = data;
    while (length) {
        ssize_t got = read(STDIN_FILENO, at, length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) _exit(0);
        at += got;
        length -= (size_t)got;
    }
}

static uint64_t take(const unsigned char **at, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *(*at)++;
    return value;
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) fail("no memory for %zu bytes", bytes);
    return memory;
}

static void read_request(struct request *request) {
    unsigned char header[28];
    read_all(header, sizeof header);
    if (memcmp(header, "RQ", 2) != 0) fail("the request does not start as one");
    const unsigned char *at = header + 2;
    unsigned version = (unsigned)take(&at, 2);
    if (version != AGENT_PROTOCOL) fail("the request has version %u, this agent %d", version, AGENT_PROTOCOL);
    request->timeout_ms = (uint32_t)take(&at, 4);
    request->capture_bytes = (uint32_t)take(&at, 4);
    request->output_limit_bytes = take(&at, 8);
    size_t environment_bytes = (size_t)take(&at, 4);
    request->script_bytes = (size_t)take(&at, 4);
    if (request->capture_bytes > MAX_CAPTURE_BYTES) fail("capture of %u bytes is too large", request->capture_bytes);
    if (environment_bytes > MAX_ENVIRONMENT_BYTES) fail("environment of %zu bytes is too large", environment_bytes);
    if (request->script_bytes > MAX_SCRIPT_BYTES) fail("script of %zu bytes is too large", request->script_bytes);

    char *environment = allocate(environment_bytes + 1);
    read_all(environment, environment_bytes);
    environment[environment_bytes] = 0;
    size_t entries = 0;
    for (char *entry = environment; entry < environment + environment_bytes; entry += strlen(entry) + 1) {
        if (entries == MAX_ENVIRONMENT_ENTRIES) fail("more than %d environment entries", MAX_ENVIRONMENT_ENTRIES);
        request->environment[entries++] = entry;
    }
    request->environment[entries] = NULL;

    request->script = allocate(request->script_bytes + 1);
    read_all(request->script, request->script_bytes);
    request->script[request->script_bytes] = 0;
    if (strlen(request->script) != request->script_bytes) fail("the script holds a NUL byte");
}

/* ---- the command --------------------------------------------------------------------------------- */

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Too long for an argument, a script is handed over as a file and evaluated: it is delivered, where the
 * kernel would refuse it. */
static int script_file(const struct request *request) {
    int fd = memfd_create("script", MFD_CLOEXEC);
    if (fd < 0) fail("memfd_create: %s", strerror(errno));
    for (size_t done = 0; done < request->script_bytes;) {
        ssize_t written = write(fd, request->script + done, request->script_bytes - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) fail("writing the script: %s", strerror(errno));
        done += (size_t)written;
    }
    if (lseek(fd, 0, SEEK_SET) < 0) fail("lseek: %s", strerror(errno));
    return fd;
}

__attribute__((noreturn)) static void child_failed(int report, const char *what) {
    dprintf(report, "%s: %s", what, strerror(errno));
    _exit(127);
}

/* Returns only as the command. What fails before goes to `report`, which closes when the command starts: a
 * sandbox that cannot start a shell is not a command that failed. */
__attribute__((noreturn)) static void become_command(const struct request *request, int script_fd, int out,
                                                     int err, int report) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0) child_failed(report, "/dev/null");
    /* Only the three streams (and a long script) pass on: neither the agent's pipes nor its signalfd do. */
    if (dup2(err, STDERR_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(null, STDIN_FILENO) < 0)
        child_failed(report, "the command's streams");
    if (script_fd >= 0 && dup2(script_fd, SCRIPT_FD) < 0) child_failed(report, "the script's file");
    if (script_fd == SCRIPT_FD) fcntl(SCRIPT_FD, F_SETFD, 0);

    if (setsid() < 0) child_failed(report, "setsid");
    /* When memory runs out the command goes, not the agent that has to tell about it. /proc/self belongs to
     * root while dumpable is off; exec sets it on again anyway. */
    prctl(PR_SET_DUMPABLE, 1);
    int adjust = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adjust >= 0) {
        ssize_t ignored = write(adjust, "1000", 4);
        (void)ignored;
        close(adjust);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
    /* An earlier command may have put something else there, or locked it: its own doing, not our failure. */
    if (chdir("/workspace") < 0 && chdir("/") < 0) child_failed(report, "/");
    if (install_filter() < 0) child_failed(report, "the system call filter");

    char *plain[] = {"/bin/bash", "-c", request->script, NULL};
    char *from_file[] = {"/bin/bash", "-c",
                         "IFS= read -r -d '' -u 3 __script; exec 3<&-; eval \"unset __script; $__script\"", NULL};
    execve("/bin/bash", script_fd >= 0 ? from_file : plain, request->environment);
    child_failed(report, "/bin/bash");
}

/* Waits until the child is the command; what it reports instead is a failure of the sandbox. */
static void await_command(int report) {
    char text[256];
    ssize_t length;
    do length = read(report, text, sizeof text);
    while (length < 0 && errno == EINTR);
    close(report);
    if (length > 0) fail("starting the command: %.*s", (int)length, text);
}

/* Children that were reaped count into *status if they were the shell. False: no child is left. */
static bool reap(pid_t shell, bool *shell_ended, int *status) {
    for (;;) {
        int wait_status;
        pid_t pid = waitpid(-1, &wait_status, WNOHANG);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return false;
        if (pid == 0) return true;
        if (pid == shell) {
            *shell_ended = true;
            *status = wait_status;
        }
    }
}

static void drain_signals(int signals) {
    struct signalfd_siginfo info[16];
    while (read(signals, info, sizeof info) > 0) continue;
}

/* Everything in this namespace but the agent, until nothing is left. */
static void kill_everything(int signals, pid_t shell, bool *shell_ended, int *status) {
    for (;;) {
        kill(-1, SIGKILL);
        if (!reap(shell, shell_ended, status)) return;
        struct pollfd wait = {.fd = signals, .events = POLLIN};
        poll(&wait, 1, 20);
        drain_signals(signals);
    }
}

static void set_nonblocking(int fd) {
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) fail("fcntl: %s", strerror(errno));
}

/* One read a turn and stream, so that a flood on one does not starve the other or the deadline. */
static bool pump(int fd, struct capture *capture) {
    static char buffer[READ_BYTES];
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got > 0) {
        capture_feed(capture, buffer, (size_t)got);
        return true;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

static void capture_frames(enum frame head, enum frame tail, const struct capture *capture) {
    frame(head, capture->head, capture->head_bytes);
    size_t first, second;
    const char *at = capture_tail(capture, &first, &second);
    frame_start(tail, first + second);
    write_all(at, first);
    write_all(capture->ring, second);
}

static unsigned char *put_stream(unsigned char *at, struct capture *capture) {
    capture_finish(capture);
    at = put(at, capture->total_bytes, 8);
    at = put(at, capture->utf8.error, 1);
    at = put(at, capture->utf8.lead, 1);
    at = put(at, capture->utf8.start, 8);
    return put(at, capture->utf8.end, 8);
}

static void nobody_reads(int signal_number) {
    (void)signal_number;
    _exit(82);
}

/* The first that is not there and cannot be made, with errno; NULL: all are there. */
static const char *make_directories(char **directories) {
    umask(022);
    for (; *directories; directories++)
        if (mkdir(*directories, 0755) < 0 && errno != EEXIST) return *directories;
    return NULL;
}

static int run(char **directories) {
    static struct request request;
    struct capture out, err;
    int out_pipe[2], err_pipe[2], report_pipe[2];

    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0) fail("sigprocmask: %s", strerror(errno));
    int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) fail("signalfd: %s", strerror(errno));
    if (pipe2(out_pipe, O_CLOEXEC) < 0 || pipe2(err_pipe, O_CLOEXEC) < 0 || pipe2(report_pipe, O_CLOEXEC) < 0)
        fail("pipe2: %s", strerror(errno));
    int report = fcntl(report_pipe[1], F_DUPFD_CLOEXEC, LEAST_REPORT_FD);
    if (report < 0) fail("fcntl: %s", strerror(errno));
    close(report_pipe[1]);

    hello("run");
    read_request(&request);
    /* Again, since an earlier command may have removed them; what it put in their place is its own doing. */
    make_directories(directories);
    if (!capture_open(&out, request.capture_bytes) || !capture_open(&err, request.capture_bytes))
        fail("no memory to capture into");
    int script_fd = request.script_bytes >= MAX_ARGUMENT_BYTES ? script_file(&request) : -1;
    cgroup_frames(FRAME_CGROUP_BEFORE);

    int64_t started = now_us();
    int64_t deadline = started + (int64_t)request.timeout_ms * 1000;
    pid_t shell = fork();
    if (shell < 0) fail("fork: %s", strerror(errno));
    if (shell == 0) become_command(&request, script_fd, out_pipe[1], err_pipe[1], report);
    close(report);
    close(out_pipe[1]);
    close(err_pipe[1]);
    if (script_fd >= 0) close(script_fd);
    set_nonblocking(out_pipe[0]);
    set_nonblocking(err_pipe[0]);
    await_command(report_pipe[0]);
    frame(FRAME_STARTED, "", 0);

    enum ending ending = ENDED_ITSELF;
    bool out_open = true, err_open = true, shell_ended = false;
    int status = 0;
    while (out_open || err_open || !shell_ended) {
        int64_t left = deadline - now_us();
        if (left <= 0) {
            ending = ENDED_BY_DEADLINE;
            break;
        }
        struct pollfd polled[] = {
            {.fd = STDIN_FILENO, .events = POLLIN},
            {.fd = signals, .events = POLLIN},
            {.fd = out_open ? out_pipe[0] : -1, .events = POLLIN},
            {.fd = err_open ? err_pipe[0] : -1, .events = POLLIN},
        };
        if (poll(polled, 4, (int)(left / 1000 + 1)) < 0 && errno != EINTR) fail("poll: %s", strerror(errno));
        if (polled[0].revents) {
            char byte;
            ssize_t got = read(STDIN_FILENO, &byte, 1);
            /* The client is gone, or says more than its one request: either way nobody waits for an answer. */
            if (got >= 0 || errno != EINTR) {
                kill_everything(signals, shell, &shell_ended, &status);
                _exit(83);
            }
        }
        if (polled[1].revents) drain_signals(signals);
        if (polled[2].revents) out_open = pump(out_pipe[0], &out);
        if (polled[3].revents) err_open = pump(err_pipe[0], &err);
        reap(shell, &shell_ended, &status);
        if (out.total_bytes + err.total_bytes > request.output_limit_bytes) {
            ending = ENDED_BY_OUTPUT;
            break;
        }
    }
    int64_t ended = now_us();
    kill_everything(signals, shell, &shell_ended, &status);

    signal(SIGALRM, nobody_reads);
    alarm(ANSWER_SECONDS);
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    uint64_t cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                      (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    unsigned char result[128], *at = result;
    at = put(at, ending, 1);
    at = put(at, (uint32_t)code, 4);
    at = put(at, (uint64_t)(ended - started), 8);
    at = put(at, cpu_us, 8);
    at = put_stream(at, &out);
    at = put_stream(at, &err);
    capture_frames(FRAME_STDOUT_HEAD, FRAME_STDOUT_TAIL, &out);
    capture_frames(FRAME_STDERR_HEAD, FRAME_STDERR_TAIL, &err);
    cgroup_frames(FRAME_CGROUP_AFTER);
    frame(FRAME_RESULT, result, (size_t)(at - result));
    frame(FRAME_END, "", 0);
    return 0;
}

static int hold(char **directories) {
    const char *missing = make_directories(directories);
    if (missing) fail("%s: %s", missing, strerror(errno));
    hello("hold");
    for (;;) {
        char ignored[256];
        ssize_t got = read(STDIN_FILENO, ignored, sizeof ignored);
        if (got == 0 || (got < 0 && errno != EINTR)) return 0;
    }
}

int main(int argc, char **argv) {
    /* Processes of the same user then cannot open what this one holds under /proc/1. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0) fail("prctl: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    if (argc >= 2 && strcmp(argv[1], "hold") == 0) return hold(argv + 2);
    if (argc >= 2 && strcmp(argv[1], "run") == 0) return run(argv + 2);
    fail("usage: agent hold DIR... | agent run DIR...");
}
