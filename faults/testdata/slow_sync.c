/* Loaded into a program (LD_PRELOAD): its fdatasync takes as many milliseconds longer as the file
 * $SLOW_SYNC says. Without the file, it takes no longer than it does. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long delay_ms(void)
{
	const char *path = getenv("SLOW_SYNC");
	FILE *file = path ? fopen(path, "r") : NULL;
	long ms = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%ld", &ms) != 1)
		ms = 0;
	fclose(file);
	return ms;
}

int fdatasync(int fd)
{
	long ms = delay_ms();
	struct timespec rest = {ms / 1000, ms % 1000 * 1000000};

	while (ms > 0 && nanosleep(&rest, &rest) != 0)
		;
	return (int)syscall(SYS_fdatasync, fd);
}
