/* Loaded into a program (LD_PRELOAD): writes at an offset, and syncs of data, do not begin while the
 * file $STALL has the words "write" and "sync". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_held(const char *word)
{
	const char *path = getenv("STALL");
	FILE *file = path ? fopen(path, "r") : NULL;
	char words[64] = "";

	if (!file)
		return 0;
	if (!fgets(words, sizeof words, file))
		words[0] = 0;
	fclose(file);
	return strstr(words, word) != NULL;
}

static void wait_for(const char *word)
{
	const struct timespec rest = {0, 10000000};

	while (is_held(word))
		nanosleep(&rest, NULL);
}

int fdatasync(int fd)
{
	wait_for("sync");
	return (int)syscall(SYS_fdatasync, fd);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset)
{
	wait_for("write");
	return syscall(SYS_pwrite64, fd, bytes, count, offset);
}
