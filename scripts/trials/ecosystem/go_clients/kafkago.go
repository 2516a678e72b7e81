package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

func runKafkaGo(brokers []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: limit}
	topic := "kafka-go"
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 3}},
	})
	must("to create a topic", err)
	must("to create a topic", created.Errors[topic])
	sent := kafkaGoWrites(ctx, brokers, topic)
	kafkaGoGroup(ctx, brokers, topic, sent)
	kafkaGoAsks(ctx, client, topic, sent)
}

func kafkaGoWrites(ctx context.Context, brokers []string, topic string) []string {
	var sent []string
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for _, codec := range codecs {
		writer := &kafka.Writer{
			Addr: kafka.TCP(brokers...), Topic: topic, Balancer: &kafka.RoundRobin{},
			RequiredAcks: kafka.RequireAll, Compression: codec, BatchTimeout: 10 * time.Millisecond,
		}
		var messages []kafka.Message
		for number := range each {
			value := fmt.Sprintf("%d-%d", codec, number)
			sent = append(sent, value)
			messages = append(messages, kafka.Message{Key: []byte(value), Value: []byte(value)})
		}
		must("to write", writer.WriteMessages(ctx, messages...))
		must("to end", writer.Close())
	}
	done("%d records of %d codecs", len(sent), len(codecs))
	return sent
}

func kafkaGoGroup(ctx context.Context, brokers []string, topic string, sent []string) {
	var mutex sync.Mutex
	var found []string
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var members sync.WaitGroup
	for range 2 {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers, GroupID: "kafka-go-group", Topic: topic, StartOffset: kafka.FirstOffset,
			MaxWait: 100 * time.Millisecond,
		})
		members.Go(func() {
			for {
				message, err := reader.FetchMessage(reading)
				if reading.Err() != nil {
					break
				}
				must("to fetch", err)
				must("to commit", reader.CommitMessages(ctx, message))
				mutex.Lock()
				found = append(found, string(message.Value))
				if len(found) == len(sent) {
					stop()
				}
				mutex.Unlock()
			}
			must("to leave", reader.Close())
		})
	}
	members.Wait()
	slices.Sort(found)
	wanted := slices.Clone(sent)
	slices.Sort(wanted)
	check(slices.Equal(found, wanted), "%d of %d records came, or others", len(found), len(sent))
	done("two members of a group share them and commit")
}

func kafkaGoAsks(ctx context.Context, client *kafka.Client, topic string, sent []string) {
	numbers := []int{0, 1, 2}
	requests := map[string][]kafka.OffsetRequest{}
	for _, number := range numbers {
		requests[topic] = append(requests[topic], kafka.FirstOffsetOf(number), kafka.LastOffsetOf(number))
	}
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: requests})
	must("to list offsets", err)
	sum := int64(0)
	for _, one := range offsets.Topics[topic] {
		must("to list offsets", one.Error)
		sum += one.LastOffset
	}
	check(sum == int64(len(sent)), "the partitions end at %d of %d", sum, len(sent))
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: "kafka-go-group", Topics: map[string][]int{topic: numbers},
	})
	must("to fetch offsets", err)
	sum = 0
	for _, one := range fetched.Topics[topic] {
		must("to fetch offsets", one.Error)
		sum += one.CommittedOffset
	}
	check(sum == int64(len(sent)), "positions are at %d of %d", sum, len(sent))
	groups, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{"kafka-go-group"}})
	must("to describe a group", err)
	check(groups.Groups[0].GroupState == "Empty", "the group is %s", groups.Groups[0].GroupState)
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	must("to describe", err)
	check(len(configs.Resources[0].ConfigEntries) > 10, "there are %d configurations", len(configs.Resources[0].ConfigEntries))
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	must("to ask for metadata", err)
	check(len(metadata.Brokers) == 3 && len(metadata.Topics[0].Partitions) == partitions, "metadata is %v", metadata)
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	must("to delete a topic", err)
	must("to delete a topic", deleted.Errors[topic])
	done("offsets, groups, configurations, metadata, deletion")
}
