// The command franz_go_groups runs franz-go's consumers in groups, told by lines what to do.
//
// A line in is a command and the name of a consumer; a line out is "ok" and what was asked for in JSON, or "error" and
// the error. The first argument is where the brokers are.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type place struct {
	topic     string
	partition int32
}

type consumer struct {
	client *kgo.Client
	mutex  sync.Mutex
	owned  map[place]bool
}

var (
	bootstrap string
	consumers = map[string]*consumer{}
	forever   = context.Background()
)

func main() {
	bootstrap = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := obey(strings.Fields(lines.Text()))
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		text, _ := json.Marshal(answer)
		fmt.Println("ok", string(text))
	}
}

func obey(words []string) (any, error) {
	member := consumers[words[1]]
	switch words[0] {
	case "open":
		made, err := open(words[2], words[3], words[4], words[5])
		consumers[words[1]] = made
		return nil, err
	case "poll":
		limit, err := strconv.Atoi(words[2])
		if err != nil {
			return nil, err
		}
		return member.poll(time.Duration(limit) * time.Millisecond)
	case "assignment":
		return member.assignment(), nil
	case "commit":
		return nil, member.client.CommitUncommittedOffsets(forever)
	case "close":
		delete(consumers, words[1])
		member.client.Close()
		return nil, nil
	}
	return nil, errors.New("unknown command")
}

// open makes a consumer. `kind` is "names", or "pattern" if what it reads is an expression.
func open(group, protocol, kind, topics string) (*consumer, error) {
	made := &consumer{owned: map[place]bool{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(strings.Split(topics, ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { made.note(parts, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { made.note(parts, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { made.note(parts, false) }),
	}
	if kind == "pattern" {
		options = append(options, kgo.ConsumeRegex())
	}
	if protocol == "consumer" {
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	made.client = client
	return made, err
}

func (c *consumer) note(parts map[string][]int32, owned bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for topic, partitions := range parts {
		for _, partition := range partitions {
			if owned {
				c.owned[place{topic, partition}] = true
			} else {
				delete(c.owned, place{topic, partition})
			}
		}
	}
}

func (c *consumer) assignment() [][]any {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found := [][]any{}
	for one := range c.owned {
		found = append(found, []any{one.topic, one.partition})
	}
	sort.Slice(found, func(i, j int) bool { return fmt.Sprint(found[i]) < fmt.Sprint(found[j]) })
	return found
}

func (c *consumer) poll(limit time.Duration) ([][]any, error) {
	within, cancel := context.WithTimeout(forever, limit)
	defer cancel()
	fetched := c.client.PollRecords(within, 500)
	if err := fetched.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	found := [][]any{}
	for _, record := range fetched.Records() {
		found = append(found, []any{record.Topic, record.Partition, record.Offset, record.Timestamp.UnixMilli(), string(record.Value)})
	}
	return found, nil
}
