#define _GNU_SOURCE /* sched_getaffinity */
#include "shim.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#define MAX_BURST 64

_Static_assert(RTE_VER_YEAR >= 22, "the names of this interface came with DPDK 22.11");

/* By number of the port: its driver has asked for it to be opened anew. */
static atomic_int wants_anew[RTE_MAX_ETHPORTS];

int rcbox_eal_init(int argc, char **argv)
{
	/* The EAL takes the calling thread for its main core; we keep our threads to ourselves. */
	cpu_set_t before;
	int known = sched_getaffinity(0, sizeof(before), &before) == 0;
	int result = rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
	if (known)
		sched_setaffinity(0, sizeof(before), &before);
	return result;
}

/*
 * Whether memory can be asked for by NUMA node; this takes the place of libnuma's, which the EAL asks before it allocates huge pages. A
 * container's usual seccomp profile refuses these system calls to whoever lacks CAP_SYS_NICE. libnuma takes only a kernel without them for a
 * no, and the EAL would then give every huge page back, since it cannot find out where it is.
 */
int numa_available(void)
{
	return syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0) < 0 ? -1 : 0;
}

int rcbox_eal_cleanup(void)
{
	return rte_eal_cleanup();
}

const char *rcbox_error_text(int number)
{
	return rte_strerror(number < 0 ? -number : number);
}

int rcbox_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void rcbox_thread_unregister(void)
{
	rte_thread_unregister();
}

int rcbox_port_next(int after)
{
	uint16_t next = rte_eth_find_next((uint16_t)(after + 1));
	return next >= RTE_MAX_ETHPORTS ? -1 : next;
}

int rcbox_port_info(uint16_t port, struct rcbox_info *info)
{
	struct rte_eth_dev_info device;
	struct rte_ether_addr mac;
	char name[RTE_ETH_NAME_MAX_LEN];
	const uint64_t tx_sums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	const uint64_t rx_sums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	int result;

	memset(info, 0, sizeof(*info));
	if ((result = rte_eth_dev_info_get(port, &device)) != 0)
		return result;
	if ((result = rte_eth_macaddr_get(port, &mac)) != 0)
		return result;
	if ((result = rte_eth_dev_get_name_by_port(port, name)) != 0)
		return result;
	snprintf(info->name, sizeof(info->name), "%s", name);
	snprintf(info->driver, sizeof(info->driver), "%s", device.driver_name);
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	info->max_rx_queues = device.max_rx_queues;
	info->max_tx_queues = device.max_tx_queues;
	/* What a driver does not limit follows from the longest packet. */
	info->max_mtu = device.max_mtu;
	if (device.max_mtu == UINT16_MAX && device.max_rx_pktlen > RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
		info->max_mtu = RTE_MIN(device.max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN, (uint32_t)UINT16_MAX);
	info->socket = rte_eth_dev_socket_id(port);
	info->has_tx_sums = (device.tx_offload_capa & tx_sums) == tx_sums;
	info->has_rx_sums = (device.rx_offload_capa & rx_sums) == rx_sums;
	info->has_link_interrupt = (*device.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
	return 0;
}

int rcbox_port_start(struct rcbox_start *start, void *pool, const char **step)
{
	struct rte_eth_conf conf;
	struct rte_eth_dev_info device;
	int socket = rte_eth_dev_socket_id(start->port);
	int result;

	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = start->mtu;
	conf.intr_conf.lsc = start->link_interrupt != 0;
	if (start->rx_sums)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	if (start->tx_sums)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	*step = "information";
	if ((result = rte_eth_dev_info_get(start->port, &device)) != 0)
		return result;
	*step = "configuration";
	if ((result = rte_eth_dev_configure(start->port, start->rx_queues, start->tx_queues, &conf)) != 0)
		return result;
	*step = "number of descriptors";
	result = rte_eth_dev_adjust_nb_rx_tx_desc(start->port, &start->rx_descriptors, &start->tx_descriptors);
	if (result != 0)
		return result;
	*step = "a receive queue";
	for (uint16_t queue = 0; queue < start->rx_queues; queue++) {
		struct rte_eth_rxconf rx = device.default_rxconf;
		rx.offloads = conf.rxmode.offloads;
		result = rte_eth_rx_queue_setup(start->port, queue, start->rx_descriptors, socket, &rx, pool);
		if (result != 0)
			return result;
	}
	*step = "a transmit queue";
	for (uint16_t queue = 0; queue < start->tx_queues; queue++) {
		struct rte_eth_txconf tx = device.default_txconf;
		tx.offloads = conf.txmode.offloads;
		result = rte_eth_tx_queue_setup(start->port, queue, start->tx_descriptors, socket, &tx);
		if (result != 0)
			return result;
	}
	*step = "the start";
	return rte_eth_dev_start(start->port);
}

/* In the EAL's thread for interrupts. */
static int on_reset(uint16_t port, enum rte_eth_event_type event, void *argument, void *result)
{
	(void)event, (void)argument, (void)result;
	if (port < RTE_MAX_ETHPORTS)
		atomic_store(&wants_anew[port], 1);
	return 0;
}

int rcbox_port_watch(uint16_t port)
{
	if (port >= RTE_MAX_ETHPORTS)
		return -ENODEV;
	atomic_store(&wants_anew[port], 0);
	return rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RESET, on_reset, NULL);
}

int rcbox_port_wants_anew(uint16_t port)
{
	return port < RTE_MAX_ETHPORTS && atomic_exchange(&wants_anew[port], 0);
}

static void unwatch(uint16_t port)
{
	/* It fails where nobody watches. */
	rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_RESET, on_reset, NULL);
}

static int copy(char *to, size_t size, const char *from)
{
	int length = snprintf(to, size, "%s", from);
	return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

int rcbox_port_place(uint16_t port, struct rcbox_place *place)
{
	struct rte_eth_dev_info device;
	const struct rte_devargs *arguments;
	char name[RTE_ETH_NAME_MAX_LEN];
	uint16_t other;
	int ports = 0, result;

	memset(place, 0, sizeof(*place));
	if ((result = rte_eth_dev_info_get(port, &device)) != 0)
		return result;
	if (device.device == NULL || rte_dev_bus(device.device) == NULL)
		return -ENOTSUP;
	/* The others would go with it. */
	RTE_ETH_FOREACH_DEV_OF(other, device.device)
		ports++;
	if (ports != 1)
		return -ENOTSUP;
	if ((result = rte_eth_dev_get_name_by_port(port, name)) != 0)
		return result;
	arguments = rte_dev_devargs(device.device);
	if ((result = copy(place->bus, sizeof(place->bus), rte_bus_name(rte_dev_bus(device.device)))) != 0 ||
	    (result = copy(place->device, sizeof(place->device), rte_dev_name(device.device))) != 0 ||
	    (result = copy(place->port, sizeof(place->port), name)) != 0)
		return result;
	return copy(place->arguments, sizeof(place->arguments), arguments != NULL && arguments->args != NULL ? arguments->args : "");
}

int rcbox_port_remove(uint16_t port)
{
	struct rte_eth_dev_info device;
	int result;

	if ((result = rte_eth_dev_info_get(port, &device)) != 0)
		return result;
	unwatch(port);
	/* A driver closes what it loses; one that cannot stop has nothing to stop. */
	rte_eth_dev_stop(port);
	return rte_dev_remove(device.device);
}

int rcbox_port_probe(const struct rcbox_place *place)
{
	uint16_t port;
	int result = rte_eal_hotplug_add(place->bus, place->device, place->arguments);

	/* It may be there: its port was not asked for yet. */
	if (result != 0 && result != -EEXIST)
		return result;
	result = rte_eth_dev_get_port_by_name(place->port, &port);
	return result != 0 ? result : port;
}

void rcbox_port_close(uint16_t port)
{
	unwatch(port);
	/* Neither can be helped when it fails: the port is being given up. */
	if (rte_eth_dev_stop(port) == 0)
		rte_eth_dev_close(port);
}

int rcbox_port_link(uint16_t port, uint32_t *speed_mbps)
{
	struct rte_eth_link link;
	int result;

	memset(&link, 0, sizeof(link));
	if ((result = rte_eth_link_get_nowait(port, &link)) < 0)
		return result;
	*speed_mbps = link.link_speed;
	return link.link_status;
}

int rcbox_port_stats(uint16_t port, struct rcbox_stats *stats)
{
	struct rte_eth_stats values;
	int result = rte_eth_stats_get(port, &values);

	memset(stats, 0, sizeof(*stats));
	if (result != 0)
		return result;
	stats->rx_packets = values.ipackets;
	stats->tx_packets = values.opackets;
	stats->rx_bytes = values.ibytes;
	stats->tx_bytes = values.obytes;
	stats->rx_missed = values.imissed;
	stats->rx_errors = values.ierrors;
	stats->tx_errors = values.oerrors;
	stats->rx_no_buffer = values.rx_nombuf;
	return 0;
}

void *rcbox_flow_udp(uint16_t port, uint16_t udp_port, uint16_t queue, const char **why)
{
	struct rte_flow_item_ipv4 ip = {.hdr.next_proto_id = IPPROTO_UDP};
	struct rte_flow_item_ipv4 ip_mask = {.hdr.next_proto_id = 0xff};
	struct rte_flow_item_udp udp = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
	struct rte_flow_item_udp udp_mask = {.hdr.dst_port = 0xffff};
	struct rte_flow_attr attributes = {.ingress = 1};
	struct rte_flow_action_queue to = {.index = queue};
	struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_item items[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &udp_mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	struct rte_flow_error error = {.message = NULL};

	/* Some drivers want to see the protocol in the header of IPv4, others do not. */
	for (int named = 0; named < 2; named++) {
		struct rte_flow *flow;
		items[1].spec = named ? &ip : NULL;
		items[1].mask = named ? &ip_mask : NULL;
		if (rte_flow_validate(port, &attributes, items, actions, &error) != 0)
			continue;
		flow = rte_flow_create(port, &attributes, items, actions, &error);
		if (flow != NULL)
			return flow;
	}
	*why = error.message != NULL ? error.message : "no reason given";
	return NULL;
}

void rcbox_flow_remove(uint16_t port, void *flow)
{
	struct rte_flow_error error;
	rte_flow_destroy(port, flow, &error);
}

void *rcbox_pool_new(const char *name, uint32_t buffers, uint16_t frame_bytes, int socket)
{
	/* Intel's older NICs receive in units of 1 KiB. */
	uint32_t room = RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL((uint32_t)frame_bytes, 1024u);
	uint32_t cache = buffers >= 2048 ? 256 : 0;

	return rte_pktmbuf_pool_create(name, buffers, cache, 0, (uint16_t)room, socket);
}

void rcbox_pool_free(void *pool)
{
	rte_mempool_free(pool);
}

uint32_t rcbox_pool_in_use(const void *pool)
{
	return rte_mempool_in_use_count(pool);
}

static uint32_t sums_of(const struct rte_mbuf *mbuf)
{
	uint64_t ip = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
	uint64_t udp = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	uint32_t flags = 0;

	/* NONE: the field holds something else, and the data is good. */
	if (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD || ip == RTE_MBUF_F_RX_IP_CKSUM_NONE)
		flags |= RCBOX_IP_GOOD;
	if (udp == RTE_MBUF_F_RX_L4_CKSUM_GOOD || udp == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		flags |= RCBOX_UDP_GOOD;
	return flags;
}

uint16_t rcbox_receive(uint16_t port, uint16_t queue, struct rcbox_buffer *buffers, uint16_t count)
{
	struct rte_mbuf *mbufs[MAX_BURST];
	uint16_t received = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, (uint16_t)MAX_BURST));

	for (uint16_t at = 0; at < received; at++) {
		struct rte_mbuf *mbuf = mbufs[at];
		/* A frame in pieces that do not fit one buffer is longer than any that is for us. */
		int whole = mbuf->nb_segs == 1 || rte_pktmbuf_linearize(mbuf) == 0;
		buffers[at].mbuf = mbuf;
		buffers[at].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		buffers[at].length = whole ? mbuf->pkt_len : 0;
		buffers[at].flags = sums_of(mbuf);
		rte_prefetch0(buffers[at].data);
	}
	return received;
}

uint16_t rcbox_send(uint16_t port, uint16_t queue, const struct rcbox_buffer *buffers, uint16_t count, int sums)
{
	struct rte_mbuf *mbufs[MAX_BURST];

	count = RTE_MIN(count, (uint16_t)MAX_BURST);
	for (uint16_t at = 0; at < count; at++) {
		struct rte_mbuf *mbuf = buffers[at].mbuf;
		mbuf->data_len = (uint16_t)buffers[at].length;
		mbuf->pkt_len = buffers[at].length;
		/* ARP has no sums; its EtherType is 0x0806. */
		if (sums && buffers[at].data[13] == 0) {
			mbuf->l2_len = RTE_ETHER_HDR_LEN;
			mbuf->l3_len = sizeof(struct rte_ipv4_hdr);
			mbuf->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_UDP_CKSUM;
		}
		mbufs[at] = mbuf;
	}
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

int rcbox_allocate(void *pool, struct rcbox_buffer *buffers, uint16_t count)
{
	struct rte_mbuf *mbufs[MAX_BURST];

	if (count > MAX_BURST || rte_pktmbuf_alloc_bulk(pool, mbufs, count) != 0)
		return -ENOMEM;
	for (uint16_t at = 0; at < count; at++) {
		buffers[at].mbuf = mbufs[at];
		buffers[at].data = rte_pktmbuf_mtod(mbufs[at], uint8_t *);
		buffers[at].length = rte_pktmbuf_tailroom(mbufs[at]);
		buffers[at].flags = 0;
	}
	return 0;
}

void rcbox_free(const struct rcbox_buffer *buffers, uint32_t count)
{
	for (uint32_t at = 0; at < count; at++)
		rte_pktmbuf_free(buffers[at].mbuf); /* none is well */
}
