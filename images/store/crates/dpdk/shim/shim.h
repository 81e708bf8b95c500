/* What Rust calls. DPDK's data path is inline C; each function here does one burst, so that the way in and out is paid once for it. */
#ifndef RCBOX_DPDK_SHIM_H
#define RCBOX_DPDK_SHIM_H

#include <stdint.h>

/* A packet buffer: ours until it is freed or sent. */
struct rcbox_buffer {
	void *mbuf;
	uint8_t *data;
	uint32_t length; /* received: bytes of the frame; fresh: bytes that it can hold */
	uint32_t flags;
};

enum {
	RCBOX_IP_GOOD = 1,
	RCBOX_UDP_GOOD = 2,
};

struct rcbox_info {
	char name[64];
	char driver[64];
	uint8_t mac[6];
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint16_t max_mtu;
	int32_t socket;
	uint32_t has_tx_sums; /* of IPv4 and UDP */
	uint32_t has_rx_sums;
	uint32_t has_link_interrupt;
};

struct rcbox_start {
	uint16_t port;
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t mtu; /* 0: as it is */
	uint32_t tx_sums;
	uint32_t rx_sums;
	uint32_t link_interrupt;
	uint16_t rx_descriptors; /* wanted; then what there is */
	uint16_t tx_descriptors;
};

struct rcbox_stats {
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes;
	uint64_t rx_missed, rx_errors, tx_errors, rx_no_buffer;
};

/* Where a port comes from, to find it again. */
struct rcbox_place {
	char bus[32];
	char device[64];
	char arguments[256];
	char port[64];
};

/* Results below 0 are negative error numbers. */
int rcbox_eal_init(int argc, char **argv);
int numa_available(void);
int rcbox_eal_cleanup(void);
const char *rcbox_error_text(int number);
int rcbox_thread_register(void);
void rcbox_thread_unregister(void);

/* The port behind `after` (-1: the first), or -1. */
int rcbox_port_next(int after);
int rcbox_port_info(uint16_t port, struct rcbox_info *info);
/* On an error, *step says what failed. */
int rcbox_port_start(struct rcbox_start *start, void *pool, const char **step);
void rcbox_port_close(uint16_t port);
/* Whether the driver has asked since the last time that the port be opened anew. Works between watch and close. */
int rcbox_port_watch(uint16_t port);
int rcbox_port_wants_anew(uint16_t port);
int rcbox_port_place(uint16_t port, struct rcbox_place *place);
/* Closes a port and gives its device back; then takes the device again: the number of its port. */
int rcbox_port_remove(uint16_t port);
int rcbox_port_probe(const struct rcbox_place *place);
int rcbox_port_link(uint16_t port, uint32_t *speed_mbps);
int rcbox_port_stats(uint16_t port, struct rcbox_stats *stats);
/* Whatever goes to a UDP port goes to a queue; *why gets a text that stays. */
void *rcbox_flow_udp(uint16_t port, uint16_t udp_port, uint16_t queue, const char **why);
void rcbox_flow_remove(uint16_t port, void *flow);

void *rcbox_pool_new(const char *name, uint32_t buffers, uint16_t frame_bytes, int socket);
void rcbox_pool_free(void *pool);
uint32_t rcbox_pool_in_use(const void *pool);

uint16_t rcbox_receive(uint16_t port, uint16_t queue, struct rcbox_buffer *buffers, uint16_t count);
uint16_t rcbox_send(uint16_t port, uint16_t queue, const struct rcbox_buffer *buffers, uint16_t count, int sums);
/* All of them, or none and a number below 0. */
int rcbox_allocate(void *pool, struct rcbox_buffer *buffers, uint16_t count);
void rcbox_free(const struct rcbox_buffer *buffers, uint32_t count);

#endif
