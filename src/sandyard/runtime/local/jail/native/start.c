/*
 * What starts in a machine, in few instructions and without a C library:
 *
 *   pause                                            the machine's first process: it waits
 *   launch LIMITS -- FOLDER PROGRAM WORD...          a command of a session
 *   become UID PARENT LIMITS -- KEPT -- PROGRAM...   bubblewrap, as the machine's user outside
 *   unshare FLAGS WRITER READER                      a process in new namespaces
 *
 * LIMITS are pairs of a resource's number and its value; KEPT are descriptors in ascending order.
 * The agent and the supervisor build the arguments; other processes never run it with their rights.
 */

#include "linux.h"

enum { FAILURE_AT = 3, NICE = 5, SIGCHLD = 17, SIGKILL = 9, CANNOT_RUN = 127 };
enum { F_SETFD = 2, FD_CLOEXEC = 1, TIOCSCTTY = 0x540E, PR_SET_PDEATHSIG = 1 };
enum { SIG_IGN = 1, SA_NOCLDWAIT = 2, SIGNAL_SET_BYTES = 8 };

struct limit {
	unsigned long soft, hard;
};

/* What the agent reads if a command can't be run; `step` counts limits, folder, program. */
struct failure {
	long code, step;
};

static unsigned long number(const char *text)
{
	unsigned long value = 0;
	while (*text >= '0' && *text <= '9')
		value = 10 * value + (unsigned long)(*text++ - '0');
	return value;
}

static int is_separator(const char *word)
{
	return !word || (word[0] == '-' && word[1] == '-' && !word[2]);
}

/* Set the limits up to the separator; `word` is then the one behind it. */
static long set_limits(char ***word)
{
	for (; !is_separator(**word); *word += 2) {
		unsigned long value = number((*word)[1]);
		struct limit limit = {value, value};
		long code = call(__NR_prlimit64, 0, number(**word), (long)&limit, 0);
		if (code < 0)
			return code;
	}
	(*word)++;
	return 0;
}

__attribute__((noreturn)) static void wait_forever(void)
{
	struct {
		long handler, flags, restorer, mask;
	} ignored = {SIG_IGN, SA_NOCLDWAIT, 0, 0};

	/* The kernel then reaps the children that nobody waits for. */
	call(__NR_rt_sigaction, SIGCHLD, (long)&ignored, 0, SIGNAL_SET_BYTES);
	for (;;)
		call(__NR_ppoll, 0, 0, 0, 0);
}

__attribute__((noreturn)) static void launch(char **word, char **environment)
{
	struct failure failure = {0, 0};

	call(__NR_fcntl, FAILURE_AT, F_SETFD, FD_CLOEXEC, 0);
	call(__NR_setsid, 0, 0, 0, 0);
	call(__NR_ioctl, 0, TIOCSCTTY, 0, 0); /* refused unless its input is a terminal */
	call(__NR_setpriority, 0, 0, NICE, 0);
	if ((failure.code = set_limits(&word)) >= 0) {
		failure.step = 1;
		if ((failure.code = call(__NR_chdir, (long)word[0], 0, 0, 0)) >= 0) {
			failure.step = 2;
			failure.code = call(__NR_execve, (long)word[1], (long)(word + 2),
					    (long)environment, 0);
		}
	}
	call(__NR_write, FAILURE_AT, (long)&failure, sizeof(failure), 0);
	leave(CANNOT_RUN);
}

__attribute__((noreturn)) static void become(char **word, char **environment)
{
	unsigned long uid = number(word[0]), parent = number(word[1]), next = 0;
	int keeps_user = word[0][0] == '-';

	word += 2;
	if (set_limits(&word) < 0)
		leave(CANNOT_RUN);
	if (!keeps_user &&
	    (call(__NR_setgroups, 0, 0, 0, 0) < 0 || call(__NR_setresgid, uid, uid, uid, 0) < 0 ||
	     call(__NR_setresuid, uid, uid, uid, 0) < 0))
		leave(CANNOT_RUN);
	/* After the calls that reset it; the parent may have ended before. */
	if (call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0) < 0 ||
	    (unsigned long)call(__NR_getppid, 0, 0, 0, 0) != parent)
		leave(CANNOT_RUN);
	for (; !is_separator(*word); word++) {
		unsigned long kept = number(*word);
		if (next < kept)
			call(__NR_close_range, next, kept - 1, 0, 0);
		next = kept + 1;
	}
	call(__NR_close_range, next, 0xFFFFFFFF, 0, 0);
	word++;
	call(__NR_execve, (long)word[0], (long)word, (long)environment, 0);
	leave(CANNOT_RUN);
}

__attribute__((noreturn)) static void unshare(char **word)
{
	char byte = '1';

	if (call(__NR_unshare, number(word[0]), 0, 0, 0) < 0)
		leave(1);
	call(__NR_write, number(word[1]), (long)&byte, 1, 0);
	call(__NR_read, number(word[2]), (long)&byte, 1, 0);
	leave(0);
}

void run(long *stack)
{
	char **words = (char **)(stack + 1), **environment = words + stack[0] + 1;
	const char *name = words[0];

	for (const char *at = name; at && *at; at++)
		if (*at == '/')
			name = at + 1;
	switch (name ? *name : 0) {
	case 'p':
		wait_forever();
	case 'l':
		launch(words + 1, environment);
	case 'b':
		become(words + 1, environment);
	case 'u':
		unshare(words + 1);
	}
	leave(CANNOT_RUN);
}
