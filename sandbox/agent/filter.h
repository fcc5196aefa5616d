/*
 * A system call filter that the command runs under on top of the engine's own profile (filters add up: the
 * strictest answer counts). Engines of different ages allow different things by default; this takes away
 * what no calculation needs and what kernels were broken through, and what slows the whole node (sync).
 *
 * It is installed between fork and exec, for the command and its children only: the agent runs nothing that
 * is foreign, and stays under the engine's profile. A call that libraries probe for and replace answers
 * ENOSYS ("not in this kernel"), every other one EPERM.
 */
#ifndef FILTER_H
#define FILTER_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "name this machine's audit architecture"
#endif

#define X32_SYSCALL_BIT 0x40000000u
/* Numbers that older kernel headers lack; the same on all architectures. */
#define NR_IO_URING_SETUP 425
#define NR_IO_URING_REGISTER 427
#define NR_PIDFD_GETFD 438
#define NR_MEMFD_SECRET 447

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(number) SECCOMP_RET_ERRNO | ((number) & SECCOMP_RET_DATA)
#define DENY(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), ANSWER(REFUSE(EPERM))
#define DENY_FAMILY(family) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (family), 0, 1), ANSWER(REFUSE(EPERM))
#define FAMILIES 4
/* On both architectures the machine is little-endian: the low half of an argument comes first. */

static int install_filter(void) {
    struct sock_filter program[] = {
        /* 32-bit calls (int 0x80): numbers of their own, little tested code. */
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
        ANSWER(REFUSE(ENOSYS)),
        LOAD(nr),
#if defined(__x86_64__)
        /* x32: the same calls under other numbers, which the list below would miss. */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_SYSCALL_BIT, 0, 1),
        ANSWER(REFUSE(ENOSYS)),
        /* Segments for 16-bit programs: nothing of today needs them, and they broke the kernel's entry code. */
        DENY(SYS_modify_ldt),
#endif
        /* io_uring: a second way into the kernel that no filter sees; Node and libuv do without. */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, NR_IO_URING_SETUP, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NR_IO_URING_REGISTER, 1, 0),
        ANSWER(REFUSE(ENOSYS)),
        /* Memory that not even the host can look into or account for. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NR_MEMFD_SECRET, 0, 1),
        ANSWER(REFUSE(ENOSYS)),
        /* Other processes' memory and descriptors: PID 1 is of the same user, and debuggers find bugs in it. */
        DENY(SYS_ptrace),
        DENY(SYS_process_vm_readv),
        DENY(SYS_process_vm_writev),
        DENY(SYS_kcmp),
        DENY(NR_PIDFD_GETFD),
        /* Key rings are no part of a namespace: keys would outlive the container and be seen by others. */
        DENY(SYS_keyctl),
        DENY(SYS_add_key),
        DENY(SYS_request_key),
        /* Holds the kernel in the middle of a copy for as long as one likes: the lever of many exploits. */
        DENY(SYS_userfaultfd),
        /* Code and counters inside the kernel: verifier bugs, and a clock for side channels. */
        DENY(SYS_bpf),
        DENY(SYS_perf_event_open),
        /* Files by number and not by path, past what is mounted: the way out of a container that was found
         * first. */
        DENY(SYS_name_to_handle_at),
        DENY(SYS_open_by_handle_at),
        /* Writes out every file system of the node, or all of one that others use, and waits for it. */
        DENY(SYS_sync),
        DENY(SYS_syncfs),
        /* New and foreign namespaces: root inside one reaches kernel code that users never could. */
        DENY(SYS_unshare),
        DENY(SYS_setns),
        DENY(SYS_mount),
        /* Limits of the agent (process 1) are not for the command to set; its own are (`ulimit`). */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 3),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 4 + 2 * FAMILIES),
        ANSWER(REFUSE(EPERM)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 1 + 2 * FAMILIES),
        /* A network namespace keeps none of the first two in: ciphers in the kernel, and the hypervisor's own
         * line to the host. Raw frames and the kernel's configuration have no use without a network. */
        LOAD(args[0]),
        DENY_FAMILY(AF_ALG),
        DENY_FAMILY(AF_VSOCK),
        DENY_FAMILY(AF_PACKET),
        DENY_FAMILY(AF_NETLINK),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    /* Set by the engine already; a filter without privileges needs it. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

#endif
