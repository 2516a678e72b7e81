/* Delays packets in a network of scripts/machines/delayed_network.py, which compiles and runs this.
 *
 *     delayed_network DESCRIPTOR DELAY_NS WAITING_BYTES_MAX
 *
 * Each packet that is read from the descriptor, a TUN device that does not block, is written back DELAY_NS later, in the
 * order in which they came. Beyond WAITING_BYTES_MAX under way, packets are lost, as in a router that is full.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES_MAX = 65535, READ_AT_ONCE = 64, NS_IN_S = 1000000000 };

struct packet {
    struct packet *next;
    int64_t due_ns;
    size_t length;
    char bytes[];
};

/* Packets under way, the oldest first. */
static struct packet *first, **end = &first;
static int64_t waiting_bytes;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)NS_IN_S + now.tv_nsec;
}

/* Wait until there is something to read, or to write. */
static void wait_for_work(int device)
{
    struct pollfd readable = {.fd = device, .events = POLLIN};
    struct timespec left = {0}, *limit = NULL;
    if (first) {
        int64_t left_ns = first->due_ns - now_ns();
        if (left_ns <= 0)
            return;
        left.tv_sec = left_ns / NS_IN_S;
        left.tv_nsec = left_ns % NS_IN_S;
        limit = &left;
    }
    ppoll(&readable, 1, limit, NULL);
}

/* Take up to READ_AT_ONCE packets, before those that are due are looked at again. */
static void take(int device, int64_t due_ns, int64_t waiting_bytes_max)
{
    static char room[PACKET_BYTES_MAX];
    for (int taken = 0; taken < READ_AT_ONCE; taken++) {
        ssize_t length = read(device, room, sizeof room);
        if (length < 0) {
            if (errno == EAGAIN || errno == EINTR)
                return;
            perror("delayed_network: read");
            exit(1);
        }
        if (waiting_bytes >= waiting_bytes_max)
            continue;
        struct packet *packet = malloc(sizeof *packet + length);
        if (!packet)
            continue;
        packet->next = NULL;
        packet->due_ns = due_ns;
        packet->length = length;
        memcpy(packet->bytes, room, length);
        *end = packet;
        end = &packet->next;
        waiting_bytes += length;
    }
}

static void give_back(int device)
{
    int64_t now = now_ns();
    while (first && first->due_ns <= now) {
        struct packet *packet = first;
        first = packet->next;
        if (!first)
            end = &first;
        waiting_bytes -= packet->length;
        if (write(device, packet->bytes, packet->length) < 0) {
            /* Lost, as by a router that cannot get rid of it. */
        }
        free(packet);
    }
}

int main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "usage: delayed_network DESCRIPTOR DELAY_NS WAITING_BYTES_MAX\n");
        return 2;
    }
    int device = atoi(words[1]);
    int64_t delay_ns = atoll(words[2]), waiting_bytes_max = atoll(words[3]);
    for (;;) {
        wait_for_work(device);
        take(device, now_ns() + delay_ns, waiting_bytes_max);
        give_back(device);
    }
}
