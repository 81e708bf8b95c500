/*
 * The client of an rcbox store, for C and C++ and every language that can call C.
 *
 * Made from the Rust sources by hack/client-c.sh --header; docs/client-c.md is the guide.
 *
 * Rules that hold everywhere:
 *
 * - What a function answers is a status: 0, a number of RAMCloud's (above 0: the store's answer), or one of this library (below 0).
 *   rcbox_error() has the text, with what to do about it. What a function gives is written only if it answers RCBOX_OK, unless it says
 *   something else.
 * - Whatever is handed in belongs to the caller and is not used any more once the function has returned. What the library allocates says
 *   by which function it is freed; free() is never right.
 * - Keys and values are bytes with a length. NULL is allowed where the length is 0. Keys have 1 to 65535 bytes, values at most 1 MiB.
 * - A pointer by which something is given may be NULL where the caller does not want it, unless the function says something else.
 * - A client serves one thread at a time; any thread, but never two at once: the second gets RCBOX_ERR_BUSY. A program with several threads
 *   makes a client for each. A child process cannot use its parent's clients: RCBOX_ERR_FORKED.
 */

#ifndef RCBOX_H
#define RCBOX_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of this header. A library of another version whose ABI is the same serves, too: see rcbox_abi().
 */
#define RCBOX_VERSION_MAJOR 0

#define RCBOX_VERSION_MINOR 1

#define RCBOX_VERSION_PATCH 0

/**
 * Goes up when programs have to be compiled again; the shared object's name ends with it.
 */
#define RCBOX_ABI 0

/**
 * For rcbox_scan_new(): leaves the values at the servers.
 */
#define RCBOX_SCAN_KEYS_ONLY 1

/**
 * What came of a call. Numbers and names from 0 on are RAMCloud's, and what the store answered; those below 0 are this library's.
 * Later versions may add some.
 */
enum rcbox_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It worked.
     */
    RCBOX_OK = 0,
    RCBOX_UNKNOWN_TABLET = 1,
    /**
     * There is no such table.
     */
    RCBOX_TABLE_DOESNT_EXIST = 2,
    /**
     * There is no such object.
     */
    RCBOX_OBJECT_DOESNT_EXIST = 3,
    /**
     * A rule wanted that there is none; the version that is there is told.
     */
    RCBOX_OBJECT_EXISTS = 4,
    /**
     * A rule wanted another version; the one that is there is told.
     */
    RCBOX_WRONG_VERSION = 5,
    /**
     * A server's memory is full: remove objects or add servers.
     */
    RCBOX_NO_TABLE_SPACE = 6,
    RCBOX_MESSAGE_TOO_SHORT = 7,
    /**
     * This version of the store does not serve it.
     */
    RCBOX_UNIMPLEMENTED_REQUEST = 8,
    RCBOX_REQUEST_FORMAT_ERROR = 9,
    RCBOX_RESPONSE_FORMAT_ERROR = 10,
    RCBOX_COULDNT_CONNECT = 11,
    RCBOX_BACKUP_BAD_SEGMENT_ID = 12,
    RCBOX_BACKUP_OPEN_REJECTED = 13,
    RCBOX_BACKUP_SEGMENT_OVERFLOW = 14,
    RCBOX_BACKUP_MALFORMED_SEGMENT = 15,
    RCBOX_SEGMENT_RECOVERY_FAILED = 16,
    RCBOX_RETRY = 17,
    RCBOX_SERVICE_NOT_AVAILABLE = 18,
    RCBOX_TIMEOUT = 19,
    RCBOX_SERVER_NOT_UP = 20,
    RCBOX_INTERNAL_ERROR = 21,
    /**
     * What was to be incremented has not 8 bytes.
     */
    RCBOX_INVALID_OBJECT = 22,
    RCBOX_TABLET_DOESNT_EXIST = 23,
    RCBOX_PARTITION_BEFORE_READ = 24,
    RCBOX_WRONG_SERVER = 25,
    RCBOX_CALLER_NOT_IN_CLUSTER = 26,
    /**
     * A value has at most 1 MiB, a key at most 65535 bytes.
     */
    RCBOX_REQUEST_TOO_LARGE = 27,
    RCBOX_UNKNOWN_INDEXLET = 28,
    RCBOX_INDEX_DOESNT_EXIST = 29,
    RCBOX_INVALID_PARAMETER = 30,
    RCBOX_STALE_RPC = 31,
    /**
     * This client was silent for too long: make a new one.
     */
    RCBOX_EXPIRED_LEASE = 32,
    RCBOX_TX_OP_AFTER_COMMIT = 33,
    /**
     * No answer in time (rcbox_options.timeout_us). The operation may have taken effect all the same.
     */
    RCBOX_ERR_TIMEOUT = -1,
    /**
     * No connection to a server that was named.
     */
    RCBOX_ERR_UNREACHABLE = -2,
    /**
     * 4096 operations are under way or not asked for: wait for some.
     */
    RCBOX_ERR_TOO_MANY = -3,
    /**
     * The client went while the operation was under way, which may have taken effect all the same.
     */
    RCBOX_ERR_CLOSED = -4,
    /**
     * Something that was handed in cannot be; rcbox_error() says what.
     */
    RCBOX_ERR_ARGUMENT = -5,
    /**
     * The operating system refuses something.
     */
    RCBOX_ERR_IO = -6,
    /**
     * The value is longer than the buffer; how long, is told.
     */
    RCBOX_ERR_BUFFER = -7,
    /**
     * It is not over yet.
     */
    RCBOX_ERR_PENDING = -8,
    /**
     * There is no such operation under way: it was waited for or cancelled.
     */
    RCBOX_ERR_NO_OPERATION = -9,
    /**
     * Another thread uses this client: make one for each thread.
     */
    RCBOX_ERR_BUSY = -10,
    /**
     * The client was made by the parent process: make a new one after fork().
     */
    RCBOX_ERR_FORKED = -11,
    /**
     * A mistake in the library; the client only answers this from now on. Please report it.
     */
    RCBOX_ERR_INTERNAL = -12,
    /**
     * No more objects: the scan has come to its end.
     */
    RCBOX_ERR_END = -13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rcbox_status rcbox_status;
#else
typedef int32_t rcbox_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A store, as one thread at a time uses it.
 */
typedef struct rcbox_client rcbox_client;

/**
 * Where somebody is in a table.
 */
typedef struct rcbox_scan rcbox_scan;

/**
 * Bytes that the library allocated: free them with rcbox_buffer_free(). Empty: data is NULL.
 */
typedef struct rcbox_buffer {
    void *data;
    size_t bytes;
} rcbox_buffer;

/**
 * How a client behaves. Fill it with 0, set size to sizeof(rcbox_options), and set what shall be otherwise;
 * in C, `rcbox_options options = {.size = sizeof options, .timeout_us = 2000000};`
 */
typedef struct rcbox_options {
    /**
     * sizeof(rcbox_options), so that a later version can add to it.
     */
    size_t size;
    /**
     * An operation that is not over after this fails with RCBOX_ERR_TIMEOUT; until then it is tried again. 0: 10 s.
     */
    uint64_t timeout_us;
    /**
     * How long to spin for an answer before sleeping; costs a core and saves the time to wake up. 0: 100 us; below 0: sleeps at once.
     */
    int64_t spin_us;
    /**
     * A connection that owes answers and is silent for this long is given up and opened again. 0: 500 ms.
     */
    uint64_t session_timeout_us;
} rcbox_options;

/**
 * When a store refuses an operation; all 0: never. The numbers of set rules are 1. Tested in the moment the operation takes effect.
 */
typedef struct rcbox_rules {
    uint64_t given_version;
    /**
     * Refuse with RCBOX_OBJECT_DOESNT_EXIST if there is none.
     */
    uint8_t doesnt_exist;
    /**
     * Refuse with RCBOX_OBJECT_EXISTS if there is one.
     */
    uint8_t exists;
    /**
     * Refuse with RCBOX_WRONG_VERSION if there is one whose version is at most given_version.
     */
    uint8_t version_le_given;
    /**
     * Refuse with RCBOX_WRONG_VERSION if there is one whose version is not given_version.
     */
    uint8_t version_ne_given;
} rcbox_rules;

/**
 * One object of rcbox_multi_read(): the first four are the caller's, the others are written.
 */
typedef struct rcbox_read_part {
    uint64_t table;
    const void *key;
    size_t key_bytes;
    /**
     * NULL: none.
     */
    const struct rcbox_rules *rules;
    /**
     * An rcbox_status.
     */
    int32_t status;
    uint64_t version;
    /**
     * Give it to rcbox_buffer_free(). Empty if the status is not RCBOX_OK.
     */
    struct rcbox_buffer value;
} rcbox_read_part;

/**
 * One object of rcbox_multi_write(): the first six are the caller's, the others are written.
 */
typedef struct rcbox_write_part {
    uint64_t table;
    const void *key;
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
    /**
     * NULL: none.
     */
    const struct rcbox_rules *rules;
    /**
     * An rcbox_status.
     */
    int32_t status;
    /**
     * The new one, or the one for which it was refused.
     */
    uint64_t version;
} rcbox_write_part;

/**
 * One object of rcbox_multi_remove(): the first four are the caller's, the others are written.
 */
typedef struct rcbox_remove_part {
    uint64_t table;
    const void *key;
    size_t key_bytes;
    /**
     * NULL: none.
     */
    const struct rcbox_rules *rules;
    /**
     * An rcbox_status.
     */
    int32_t status;
    /**
     * Of what was removed, 0 if there was nothing; or the one for which it was refused.
     */
    uint64_t version;
} rcbox_remove_part;

/**
 * An object, as a scan shows it. It belongs to the scan.
 */
typedef struct rcbox_object {
    const void *key;
    size_t key_bytes;
    /**
     * NULL, if it is empty or was left at the servers.
     */
    const void *value;
    size_t value_bytes;
    uint64_t version;
} rcbox_object;

/**
 * What came of an operation that was waited for.
 */
typedef struct rcbox_outcome {
    /**
     * Of what was read or written, what was removed (0: there was nothing), what was incremented; or for which it was refused.
     */
    uint64_t version;
    /**
     * Of an increment: the sum.
     */
    int64_t number;
    /**
     * Of a read: give it to rcbox_buffer_free().
     */
    struct rcbox_buffer value;
} rcbox_outcome;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that runs, such as "0.1.0". Belongs to the library.
 */
const char *rcbox_version(void);

/**
 * The ABI of the library that runs. It fits if it equals RCBOX_ABI.
 */
uint32_t rcbox_abi(void);

/**
 * The name of a status, such as "OBJECT_DOESNT_EXIST" or "ERR_TIMEOUT"; "UNKNOWN" for a number that is none. Belongs to the library.
 */
const char *rcbox_status_name(int32_t status);

/**
 * Frees what is in a buffer, and empties it: freeing it twice does nothing. NULL is allowed.
 */
void rcbox_buffer_free(struct rcbox_buffer *buffer);

/**
 * Makes a client of the store whose coordinator has this locator, such as "tcp:host=10.0.0.1,port=11100", or one of these, separated by
 * ";". It opens no connection yet: that nobody is there shows with the first call.
 *
 * The client belongs to the caller, until rcbox_close(). options may be NULL. If it fails, *client is NULL and rcbox_error(NULL) says why.
 */
rcbox_status rcbox_connect(const char *locator,
                           const struct rcbox_options *options,
                           struct rcbox_client **client);

/**
 * Ends a client, and gives up what it has under way, which may take effect all the same. NULL is allowed. If it answers RCBOX_ERR_BUSY,
 * the client is as it was; otherwise it is gone. In a child process of the one that made it, it does nothing to the connections, which are
 * the parent's as well.
 */
rcbox_status rcbox_close(struct rcbox_client *client);

/**
 * What was wrong when a call with this client failed last, and what to do about it; "" if none has. With NULL: why rcbox_connect() failed
 * in this thread. The text belongs to the client (or the thread) and is good until the next call with it.
 *
 * RCBOX_ERR_BUSY, RCBOX_ERR_FORKED and a NULL for a client leave no text: their names say all.
 */
const char *rcbox_error(struct rcbox_client *client);

/**
 * Makes a table, or finds the one of that name. It is spread over `span` servers; 1 will do. *table is its id.
 */
rcbox_status rcbox_create_table(struct rcbox_client *client, const char *name, uint32_t span, uint64_t *table);

/**
 * Finds the table of that name; RCBOX_TABLE_DOESNT_EXIST if there is none.
 */
rcbox_status rcbox_find_table(struct rcbox_client *client, const char *name, uint64_t *table);

/**
 * Drops a table with all its objects. Dropping one that is not there succeeds.
 */
rcbox_status rcbox_drop_table(struct rcbox_client *client, const char *name);

/**
 * Reads an object into the caller's buffer, unless rules (NULL: none) refuse it.
 *
 * *value_bytes is how long the value is, and must not be NULL. If that is more than buffer_bytes, the answer is RCBOX_ERR_BUFFER and the
 * buffer is as it was: come again with a larger one. buffer may be NULL if buffer_bytes is 0, to ask for length and version alone.
 * *version is the object's, also when it is refused for it or the buffer is too short.
 */
rcbox_status rcbox_read(struct rcbox_client *client,
                        uint64_t table,
                        const void *key,
                        size_t key_bytes,
                        const struct rcbox_rules *rules,
                        void *buffer,
                        size_t buffer_bytes,
                        size_t *value_bytes,
                        uint64_t *version);

/**
 * Reads an object of any length. *value is the caller's then, to be given to rcbox_buffer_free(); it must not be NULL, and what it held
 * before is not freed. If it fails, it is empty.
 */
rcbox_status rcbox_read_alloc(struct rcbox_client *client,
                              uint64_t table,
                              const void *key,
                              size_t key_bytes,
                              const struct rcbox_rules *rules,
                              struct rcbox_buffer *value,
                              uint64_t *version);

/**
 * Writes an object, unless rules (NULL: none) refuse it. *version is its new one; if it is refused for the one that is there, that one.
 * Takes effect once, however often it had to be sent.
 */
rcbox_status rcbox_write(struct rcbox_client *client,
                         uint64_t table,
                         const void *key,
                         size_t key_bytes,
                         const void *value,
                         size_t value_bytes,
                         const struct rcbox_rules *rules,
                         uint64_t *version);

/**
 * Removes an object, unless rules (NULL: none) refuse it. *version is that of what was removed, 0 if there was nothing; if it is refused
 * for the one that is there, that one. Takes effect once.
 */
rcbox_status rcbox_remove(struct rcbox_client *client,
                          uint64_t table,
                          const void *key,
                          size_t key_bytes,
                          const struct rcbox_rules *rules,
                          uint64_t *version);

/**
 * Adds to a value of 8 bytes that is a little-endian integer; one that is not there counts as 0. *value is the sum, which wraps around.
 * Takes effect once. RCBOX_INVALID_OBJECT if the value has not 8 bytes.
 */
rcbox_status rcbox_increment(struct rcbox_client *client,
                             uint64_t table,
                             const void *key,
                             size_t key_bytes,
                             int64_t by,
                             const struct rcbox_rules *rules,
                             int64_t *value,
                             uint64_t *version);

/**
 * As rcbox_increment(), of a little-endian floating point number (IEEE 754 binary64).
 */
rcbox_status rcbox_increment_double(struct rcbox_client *client,
                                    uint64_t table,
                                    const void *key,
                                    size_t key_bytes,
                                    double by,
                                    const struct rcbox_rules *rules,
                                    double *value,
                                    uint64_t *version);

/**
 * Reads `count` objects, in few messages to all servers at once. RCBOX_OK: each part has a status of its own. Not atomic. If it answers
 * something else, every part has that status. What values the parts held before is not freed.
 */
rcbox_status rcbox_multi_read(struct rcbox_client *client,
                              struct rcbox_read_part *parts,
                              size_t count);

/**
 * Writes `count` objects; see rcbox_multi_read(). Not atomic, and a part whose answer got lost may take effect again.
 */
rcbox_status rcbox_multi_write(struct rcbox_client *client, struct rcbox_write_part *parts, size_t count);

/**
 * Removes `count` objects; see rcbox_multi_read(). Not atomic, and a part whose answer got lost may take effect again.
 */
rcbox_status rcbox_multi_remove(struct rcbox_client *client, struct rcbox_remove_part *parts, size_t count);

/**
 * Begins a scan of all objects of a table. flags: 0, or RCBOX_SCAN_KEYS_ONLY. It belongs to the caller, until rcbox_scan_free(); it is
 * bound to no client. NULL if a flag is unknown.
 */
struct rcbox_scan *rcbox_scan_new(uint64_t table,
                                  uint32_t flags);

/**
 * Shows the next object: what *object points to is good until the next call with the same scan. RCBOX_ERR_END behind the last one.
 * After another failure, the next call tries the same place again.
 *
 * Objects that are there from the beginning of the scan to its end come at least once; those that are written or removed meanwhile may
 * come or not. Of an object with several keys, the first is shown. Two threads cannot use a scan at once.
 */
rcbox_status rcbox_scan_next(struct rcbox_client *client,
                             struct rcbox_scan *scan,
                             struct rcbox_object *object);

/**
 * Ends a scan; NULL is allowed.
 */
void rcbox_scan_free(struct rcbox_scan *scan);

/**
 * Starts a read. *operation is its number, for rcbox_wait() and the others; it must not be NULL. The key is not used any more once the
 * function has returned.
 *
 * It goes out with what else is started, at the latest when this thread polls or waits for any of them: a program that neither polls nor
 * waits makes no progress. It ends after rcbox_options.timeout_us at the latest. At most 4096 can be under way or not asked for;
 * RCBOX_ERR_TOO_MANY. Operations under way at the same time may overtake each other.
 */
rcbox_status rcbox_submit_read(struct rcbox_client *client,
                               uint64_t table,
                               const void *key,
                               size_t key_bytes,
                               const struct rcbox_rules *rules,
                               uint64_t *operation);

/**
 * Starts a write; see rcbox_submit_read(). Takes effect once.
 */
rcbox_status rcbox_submit_write(struct rcbox_client *client,
                                uint64_t table,
                                const void *key,
                                size_t key_bytes,
                                const void *value,
                                size_t value_bytes,
                                const struct rcbox_rules *rules,
                                uint64_t *operation);

/**
 * Starts a removal; see rcbox_submit_read(). Takes effect once.
 */
rcbox_status rcbox_submit_remove(struct rcbox_client *client,
                                 uint64_t table,
                                 const void *key,
                                 size_t key_bytes,
                                 const struct rcbox_rules *rules,
                                 uint64_t *operation);

/**
 * Starts an increment, as of rcbox_increment(); see rcbox_submit_read(). Takes effect once.
 */
rcbox_status rcbox_submit_increment(struct rcbox_client *client,
                                    uint64_t table,
                                    const void *key,
                                    size_t key_bytes,
                                    int64_t by,
                                    const struct rcbox_rules *rules,
                                    uint64_t *operation);

/**
 * Receives what has come, without waiting. RCBOX_OK: rcbox_wait() would give the operation's outcome at once, which may be a failure;
 * RCBOX_ERR_PENDING: not yet.
 */
rcbox_status rcbox_poll(struct rcbox_client *client,
                        uint64_t operation);

/**
 * Waits until any operation that was started is over, but for no longer than timeout_us; 0: receives what has come. *operation is one
 * that rcbox_wait() gives the outcome of at once, and is told again and again until somebody does. RCBOX_ERR_PENDING: none was over in
 * time. RCBOX_ERR_NO_OPERATION: none is under way.
 */
rcbox_status rcbox_wait_any(struct rcbox_client *client,
                            uint64_t timeout_us,
                            uint64_t *operation);

/**
 * Waits for an operation, and answers as the call would have that waits. It is over then, and its number forgotten. *outcome is written
 * in any case, and must not be NULL; fields that the operation has nothing for are 0. What value it held before is not freed.
 */
rcbox_status rcbox_wait(struct rcbox_client *client,
                        uint64_t operation,
                        struct rcbox_outcome *outcome);

/**
 * Waits for a read, and copies its value into the caller's buffer, as rcbox_read() does. RCBOX_ERR_BUFFER: it is too short, and the
 * operation can be waited for again (rcbox_wait_any() does not name it any more). RCBOX_ERR_ARGUMENT: it is no read, and goes on.
 */
rcbox_status rcbox_wait_read(struct rcbox_client *client,
                             uint64_t operation,
                             void *buffer,
                             size_t buffer_bytes,
                             size_t *value_bytes,
                             uint64_t *version);

/**
 * Gives an operation up, and forgets its number. It may take effect all the same, or have done so.
 */
rcbox_status rcbox_cancel(struct rcbox_client *client, uint64_t operation);

/**
 * How many operations were started and neither waited for nor cancelled; 0 for a client that cannot be used.
 */
size_t rcbox_under_way(struct rcbox_client *client);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RCBOX_H */
