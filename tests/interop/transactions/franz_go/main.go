// The command franz_go is franz-go's transactional producer and consumer of committed records, told by lines what to do.
//
// A line in is a command; a line out is "ok" and what was asked for, or "fenced" or "error" and the error. A producer
// goes by the name that "open" gives it.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap string
	producers = map[string]*kgo.Client{}
	forever   = context.Background()
)

func main() {
	bootstrap = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := obey(strings.Fields(lines.Text()))
		word := "ok"
		if err != nil {
			word, answer = "error", strings.ReplaceAll(err.Error(), "\n", " ")
			if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
				word = "fenced"
			}
		}
		fmt.Println(word, answer)
	}
}

func obey(words []string) (string, error) {
	producer := producers[words[1]]
	switch words[0] {
	case "open":
		client, err := client(kgo.TransactionalID(words[2]))
		if err != nil {
			return "", err
		}
		producers[words[1]] = client
		_, _, err = client.ProducerID(forever)
		return "", err
	case "begin":
		return "", producer.BeginTransaction()
	case "send":
		return "", producer.ProduceSync(forever, record(words[2], words[3])).FirstErr()
	case "commit":
		return "", producer.EndTransaction(forever, kgo.TryCommit)
	case "abort":
		return "", producer.EndTransaction(forever, kgo.TryAbort)
	case "close":
		producer.Close()
		return "", nil
	case "copy":
		count, err := strconv.Atoi(words[5])
		if err != nil {
			return "", err
		}
		return "", copyAll(words[1], words[2], words[3], words[4], count)
	case "read":
		count, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		return read(words[1], count)
	}
	return "", errors.New("unknown command")
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, settings()...)...)
}

func settings() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
}

func record(topic, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: 0, Value: []byte(value)}
}

// copyAll copies in capitals: what each poll brings in a transaction, of which the first is aborted.
func copyAll(transactionalID, group, source, target string, count int) error {
	options := append(settings(), kgo.TransactionalID(transactionalID), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source))
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	defer session.Close()
	how := kgo.TryAbort
	for copied := 0; copied < count; {
		fetched := session.PollRecords(forever, 4)
		if err := fetched.Err(); err != nil {
			return err
		}
		if fetched.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		for _, found := range fetched.Records() {
			made := record(target, strings.ToUpper(string(found.Value)))
			if err := session.ProduceSync(forever, made).FirstErr(); err != nil {
				return err
			}
		}
		committed, err := session.End(forever, how)
		if err != nil {
			return err
		}
		if committed {
			copied += fetched.NumRecords()
		}
		how = kgo.TryCommit
	}
	return nil
}

func read(topic string, count int) (string, error) {
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	reader, err := client(kgo.ConsumePartitions(from))
	if err != nil {
		return "", err
	}
	defer reader.Close()
	var values []string
	for len(values) < count {
		fetched := reader.PollFetches(forever)
		if err := fetched.Err(); err != nil {
			return "", err
		}
		for _, found := range fetched.Records() {
			values = append(values, string(found.Value))
		}
	}
	return strings.Join(values, " "), nil
}
