// Command natsload is the counterpart of kafka_load.py for NATS JetStream: the same loads, the same protocol with the
// harness (load.py). A stream stands in for a partition.
//
//	natsload JSON
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	turn       = 512  // records in a row to one stream
	pending    = 4000 // publishes in flight where nothing else is said
	warm       = 2 * time.Second
	limit      = 5 * time.Minute
	window     = 32 << 20 // bytes that all readers together ask for at a time: a server cuts off who has 64 MiB to come
	pauseLimit = 60 * time.Second
)

type load struct {
	Kind        string  `json:"kind"`
	Address     string  `json:"address"`
	Partitions  int     `json:"partitions"`
	Replicas    int     `json:"replicas"`
	RecordBytes int     `json:"record_bytes"`
	Records     int     `json:"records"`
	Rate        int     `json:"rate"`
	Seconds     float64 `json:"seconds"`
	InFlight    int     `json:"in_flight"`
	Consumers   int     `json:"consumers"`
}

type metrics map[string]float64

// bench is a connection with streams that were made for this measurement.
type bench struct {
	load
	js       jetstream.JetStream
	prefix   string
	subjects []string
	value    []byte
	refused  atomic.Int64
	stdin    *bufio.Reader
	patience context.Context // of what a busy server may take long for; the client's own limit would be 5 s
}

func main() {
	b := &bench{stdin: bufio.NewReader(os.Stdin)}
	stopOn(json.Unmarshal([]byte(os.Args[1]), &b.load))
	var cancel context.CancelFunc
	b.patience, cancel = context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	kinds := map[string]func(){
		"throughput": b.throughput, "latency": b.latency, "tiny": b.tiny, "fan-out": b.fanOut,
		"idle-consumers": b.idleConsumers, "failover": b.failover,
	}
	kind, known := kinds[b.Kind]
	if !known {
		log.Fatalf("there is no load %q for NATS", b.Kind)
	}
	inFlight := pending
	if b.Kind == "tiny" {
		inFlight = b.InFlight
	}
	if b.Kind == "failover" {
		b.Partitions = 1
	}
	b.connect(inFlight)
	kind()
	if b.Kind != "failover" { // there a server is gone that has to agree
		for number := range b.subjects {
			stopOn(b.js.DeleteStream(b.patience, b.stream(number)))
		}
	}
	if refused := b.refused.Load(); refused > 0 {
		log.Fatalf("%d records were refused", refused)
	}
}

func (b *bench) dial() *nats.Conn {
	connection, err := nats.Connect(b.Address, nats.Timeout(10*time.Second), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond))
	stopOn(err)
	return connection
}

func (b *bench) connect(inFlight int) {
	var err error
	onRefusal := func(jetstream.JetStream, *nats.Msg, error) { b.refused.Add(1) }
	b.js, err = jetstream.New(b.dial(),
		jetstream.WithPublishAsyncMaxPending(inFlight), jetstream.WithPublishAsyncErrHandler(onRefusal))
	stopOn(err)
	b.prefix = fmt.Sprintf("bench%d", time.Now().UnixNano())
	for number := 0; number < b.Partitions; number++ {
		b.subjects = append(b.subjects, fmt.Sprintf("%s.%d", b.prefix, number))
		b.create(number)
	}
	b.value = make([]byte, b.RecordBytes)
	_, err = rand.Read(b.value[:b.RecordBytes/2])
	stopOn(err)
}

func (b *bench) stream(number int) string { return fmt.Sprintf("%s_%d", b.prefix, number) }

// create makes a stream. Servers that are healthy may not know of each other yet; then there are too few for it.
func (b *bench) create(number int) {
	config := jetstream.StreamConfig{
		Name: b.stream(number), Subjects: []string{b.subjects[number]}, Replicas: b.Replicas,
		Storage: jetstream.FileStorage,
	}
	_, err := b.js.CreateStream(context.Background(), config)
	for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
		_, err = b.js.CreateStream(context.Background(), config)
	}
	stopOn(err)
}

// phase waits for the harness, measures, and reports.
func (b *bench) phase(name string, measure func() metrics) {
	fmt.Println("ready", name)
	if line, err := b.stdin.ReadString('\n'); err != nil || line != "go\n" {
		log.Fatal("the harness has gone")
	}
	data, err := json.Marshal(measure())
	stopOn(err)
	fmt.Println("done", string(data))
}

// publish waits for as long as it takes until there is room in the window; the client's own limit would be 0.2 s.
func (b *bench) publish(subject string) (jetstream.PubAckFuture, error) {
	return b.js.PublishAsync(subject, b.value, jetstream.WithStallWait(limit))
}

func (b *bench) publishAll() {
	block := turn
	if b.RecordBytes > 4096 {
		block = 1
	}
	for number := 0; number < b.Records; number++ {
		if _, err := b.publish(b.subjects[number/block%b.Partitions]); err != nil {
			b.refused.Add(1)
		}
	}
	b.complete()
}

func (b *bench) complete() {
	select {
	case <-b.js.PublishAsyncComplete():
	case <-time.After(limit):
		log.Fatal("acknowledgements are missing")
	}
}

// consume hands all records of one stream, from its beginning on, to handle until it is stopped.
func (b *bench) consume(js jetstream.JetStream, number int, handle jetstream.MessageHandler,
	options ...jetstream.PullConsumeOpt) jetstream.ConsumeContext {
	consumer, err := js.OrderedConsumer(b.patience, b.stream(number), jetstream.OrderedConsumerConfig{})
	stopOn(err)
	consuming, err := consumer.Consume(handle, options...)
	stopOn(err)
	return consuming
}

// readAll reads all records of all streams with a consumer for each, as one of so many readers.
func (b *bench) readAll(readers int) {
	ahead := jetstream.PullMaxMessages(max(2, min(5000, window/b.RecordBytes/b.Partitions/readers)))
	var seen atomic.Int64
	done := make(chan struct{})
	for number := range b.subjects {
		defer b.consume(b.js, number, func(jetstream.Msg) {
			if seen.Add(1) == int64(b.Records) {
				close(done)
			}
		}, ahead).Stop()
	}
	select {
	case <-done:
	case <-time.After(limit):
		log.Fatalf("only %d of %d records were read", seen.Load(), b.Records)
	}
}

func (b *bench) rate(records int, began time.Time) metrics {
	seconds := time.Since(began).Seconds()
	return metrics{
		"records_s": float64(records) / seconds,
		"mb_s":      float64(records) * float64(b.RecordBytes) / seconds / 1e6,
		"bytes":     float64(records) * float64(b.RecordBytes),
	}
}

func (b *bench) throughput() {
	b.phase("produce", func() metrics {
		began := time.Now()
		b.publishAll()
		return b.rate(b.Records, began)
	})
	b.phase("consume", func() metrics {
		began := time.Now()
		b.readAll(1)
		return b.rate(b.Records, began)
	})
}

func (b *bench) latency() { b.phase("latency", b.openLoop) }

// openLoop publishes at a fixed rate, whatever comes back; each record is timed from when it was due.
func (b *bench) openLoop() metrics {
	var lock sync.Mutex
	var waits []float64
	var open sync.WaitGroup
	began, first := time.Now(), int(warm.Seconds()*float64(b.Rate))
	for number := 0; number < int(float64(b.Rate)*(warm.Seconds()+b.Seconds)); number++ {
		due := began.Add(time.Duration(float64(number) / float64(b.Rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
		future, err := b.publish(b.subjects[number%b.Partitions])
		if err != nil {
			b.refused.Add(1)
			continue
		}
		open.Add(1)
		go func() {
			defer open.Done()
			select {
			case <-future.Ok():
				if number >= first {
					lock.Lock()
					waits = append(waits, time.Since(due).Seconds()*1e3)
					lock.Unlock()
				}
			case <-future.Err():
			}
		}()
	}
	open.Wait()
	sort.Float64s(waits)
	at := func(share float64) float64 { return waits[min(len(waits)-1, int(share*float64(len(waits))))] }
	return metrics{"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": waits[len(waits)-1]}
}

// idleConsumers is an open loop while consumers wait, each with a connection of its own, for the records of one stream.
func (b *bench) idleConsumers() {
	var received atomic.Int64
	for number := 0; number < b.Consumers; number++ {
		connection := b.dial()
		defer connection.Close()
		js, err := jetstream.New(connection)
		stopOn(err)
		defer b.consume(js, number%b.Partitions, func(jetstream.Msg) { received.Add(1) }).Stop()
	}
	b.phase("idle consumers", func() metrics {
		before := received.Load()
		found := b.openLoop()
		found["answers_s"] = float64(received.Load()-before) / (warm.Seconds() + b.Seconds)
		return found
	})
}

// tiny sends one record a request. The client's window of one never empties, so a request in flight is one waited for.
func (b *bench) tiny() {
	publish := func(subject string) error {
		_, err := b.publish(subject)
		return err
	}
	if b.InFlight == 1 {
		publish = func(subject string) error {
			_, err := b.js.Publish(context.Background(), subject, b.value)
			return err
		}
	}
	b.phase("tiny", func() metrics {
		sent, end := 0, time.Now().Add(time.Duration(b.Seconds*float64(time.Second)))
		for ; time.Now().Before(end); sent++ {
			if err := publish(b.subjects[sent%b.Partitions]); err != nil {
				b.refused.Add(1)
			}
		}
		within := sent - b.js.PublishAsyncPending()
		b.complete()
		return metrics{"requests_s": float64(within) / b.Seconds}
	})
}

func (b *bench) fanOut() {
	b.phase("fan-out", func() metrics {
		began := time.Now()
		var readers sync.WaitGroup
		for range b.Consumers {
			readers.Add(1)
			go func() {
				defer readers.Done()
				b.readAll(b.Consumers)
			}()
		}
		b.publishAll()
		readers.Wait()
		return b.rate(b.Records*b.Consumers, began)
	})
}

func (b *bench) failover() {
	stream, err := b.js.Stream(context.Background(), b.stream(0))
	stopOn(err)
	info, err := stream.Info(context.Background())
	stopOn(err)
	leader := strings.TrimPrefix(info.Cluster.Leader, "node")
	b.phase("failover", func() metrics {
		began, last, pause, killed := time.Now(), time.Now(), time.Duration(0), time.Time{}
		for killed.IsZero() || time.Since(killed) < pauseLimit {
			if killed.IsZero() && time.Since(began) > warm {
				killed = time.Now()
				fmt.Println("kill", leader)
			}
			if !killed.IsZero() && time.Since(killed) > warm && last.After(killed.Add(warm/2)) {
				break
			}
			attempt, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_, err := b.js.Publish(attempt, b.subjects[0], b.value)
			cancel()
			if err == nil {
				pause, last = max(pause, time.Since(last)), time.Now()
			}
		}
		return metrics{"pause_s": pause.Seconds()}
	})
}

func stopOn(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
