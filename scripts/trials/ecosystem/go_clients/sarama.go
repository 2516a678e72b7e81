package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 3
	each       = 100 // records for each codec
	limit      = 60 * time.Second
)

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func runSarama(brokers []string) {
	admin, err := sarama.NewClusterAdmin(brokers, settings())
	must("to administer", err)
	defer admin.Close()
	topic := "sarama"
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3}
	must("to create a topic", admin.CreateTopic(topic, detail, false))
	sent := saramaProduces(brokers, topic)
	saramaGroup(brokers, topic, sent)
	saramaTransactions(brokers, topic)
	saramaAdministers(admin, topic, sent)
}

func saramaProduces(brokers []string, topic string) []string {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	var sent []string
	for _, codec := range codecs {
		config := settings()
		config.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer(brokers, config)
		must("to begin to produce", err)
		var messages []*sarama.ProducerMessage
		for number := range each {
			value := fmt.Sprintf("%s-%d", codec, number)
			sent = append(sent, value)
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value),
				Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte(value)}},
			})
		}
		must("to produce with "+codec.String(), producer.SendMessages(messages))
		must("to end", producer.Close())
	}
	done("%d records, idempotent, of %d codecs", len(sent), len(codecs))
	return sent
}

// reader is a member of a group that collects values until all members together have enough.
type reader struct {
	mutex  sync.Mutex
	values []string
	wanted int
	full   chan struct{}
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		check(string(message.Headers[0].Value) == string(message.Value), "a header of %s", message.Value)
		session.MarkMessage(message, "")
		r.mutex.Lock()
		r.values = append(r.values, string(message.Value))
		if len(r.values) == r.wanted {
			close(r.full)
		}
		r.mutex.Unlock()
	}
	return nil
}

func saramaGroup(brokers []string, topic string, sent []string) {
	both := &reader{wanted: len(sent), full: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var members sync.WaitGroup
	for number := range 2 {
		config := settings()
		config.Consumer.Group.InstanceId = fmt.Sprintf("instance-%d", number)
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
		group, err := sarama.NewConsumerGroup(brokers, "sarama-group", config)
		must("to join", err)
		members.Go(func() {
			for ctx.Err() == nil {
				err := group.Consume(ctx, []string{topic}, both)
				if ctx.Err() == nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
					must("to consume", err)
				}
			}
			must("to leave", group.Close())
		})
	}
	select {
	case <-both.full:
	case <-ctx.Done():
		both.mutex.Lock()
		check(false, "%d of %d records came", len(both.values), len(sent))
	}
	cancel()
	members.Wait()
	slices.Sort(both.values)
	wanted := slices.Clone(sent)
	slices.Sort(wanted)
	check(slices.Equal(both.values, wanted), "what two members of a group read is not what was sent")
	done("two static members of a group share them and commit")
}

func saramaTransactions(brokers []string, topic string) {
	config := settings()
	config.Producer.Transaction.ID = "sarama-id"
	producer, err := sarama.NewSyncProducer(brokers, config)
	must("to begin transactions", err)
	for number := range 4 {
		must("to begin", producer.BeginTxn())
		value := fmt.Sprintf("transaction-%d", number)
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Partition: 0, Value: sarama.StringEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte(value)}},
		})
		must("to send in a transaction", err)
		offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: int64(number + 1)}}}
		must("to add offsets", producer.AddOffsetsToTxn(offsets, "sarama-pipeline"))
		if number%2 == 0 {
			must("to commit", producer.CommitTxn())
		} else {
			must("to abort", producer.AbortTxn())
		}
	}
	must("to end", producer.Close())
	committed := saramaReads(brokers, topic, "transaction-")
	check(slices.Equal(committed, []string{"transaction-0", "transaction-2"}), "committed is %v", committed)
	done("transactions with offsets, of which each other one is aborted")
}

// saramaReads returns the committed values with a beginning, of all partitions, in order.
func saramaReads(brokers []string, topic, beginning string) []string {
	client, err := sarama.NewClient(brokers, settings())
	must("to look", err)
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	must("to read", err)
	defer consumer.Close()
	var found []string
	for partition := range int32(partitions) {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		must("to find the end", err)
		part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		must("to read a partition", err)
		// Past the last record there may be markers, of which nothing comes.
		quiet := time.NewTimer(5 * time.Second)
		for position := int64(0); position < end; {
			select {
			case message := <-part.Messages():
				position = message.Offset + 1
				if value := string(message.Value); len(value) > len(beginning) && value[:len(beginning)] == beginning {
					found = append(found, value)
				}
				quiet.Reset(2 * time.Second)
			case <-quiet.C:
				position = end
			}
		}
		must("to end", part.Close())
	}
	slices.Sort(found)
	return found
}

func saramaAdministers(admin sarama.ClusterAdmin, topic string, sent []string) {
	topics, err := admin.ListTopics()
	must("to list topics", err)
	check(topics[topic].NumPartitions == partitions, "topics are %v", topics)
	groups, err := admin.ListConsumerGroups()
	must("to list groups", err)
	check(groups["sarama-group"] == "consumer", "groups are %v", groups)
	described, err := admin.DescribeConsumerGroups([]string{"sarama-group"})
	must("to describe a group", err)
	check(len(described[0].Members) == 2, "static members are %v", described[0].Members)
	offsets, err := admin.ListConsumerGroupOffsets("sarama-group", nil)
	must("to list offsets", err)
	sum := int64(0)
	for _, block := range offsets.Blocks[topic] {
		sum += block.Offset
	}
	check(sum == int64(len(sent)), "positions are at %d of %d", sum, len(sent))
	pipeline, err := admin.ListConsumerGroupOffsets("sarama-pipeline", nil)
	must("to list offsets", err)
	check(pipeline.GetBlock(topic, 0).Offset == 3, "the pipeline is at %d", pipeline.GetBlock(topic, 0).Offset)
	value := "123456"
	entries := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}
	must("to alter", admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false))
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	eventually("the topic's setting", func() bool { // another broker may be asked, which hears of it a moment later
		configs, err := admin.DescribeConfig(resource)
		must("to describe", err)
		return configs[0].Value == value
	})
	must("to delete records", admin.DeleteRecords(topic, map[int32]int64{0: 1}))
	must("to create partitions", admin.CreatePartitions(topic, partitions+1, nil, false))
	brokers, controller, err := admin.DescribeCluster()
	must("to describe the cluster", err)
	check(len(brokers) == 3 && controller > 0, "brokers are %v", brokers)
	directories, err := admin.DescribeLogDirs([]int32{1, 2, 3})
	must("to describe directories", err)
	check(len(directories) == 3, "directories are %v", directories)
	moving, err := admin.ListPartitionReassignments(topic, []int32{0, 1})
	must("to list reassignments", err)
	check(len(moving) == 0, "reassignments are %v", moving)
	for _, instance := range []string{"instance-0", "instance-1"} {
		_, err := admin.RemoveMemberFromConsumerGroup("sarama-group", []string{instance})
		must("to remove a member", err)
	}
	must("to delete a group", admin.DeleteConsumerGroup("sarama-group"))
	must("to delete a topic", admin.DeleteTopic(topic))
	done("topics, groups, offsets, configurations, records, partitions, directories, reassignments")
}
