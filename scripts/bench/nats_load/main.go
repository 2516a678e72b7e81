// Command natsload publishes to replicated JetStream streams and prints one JSON line with the rate it reached.
//
//	natsload -url URL -records N -bytes B -streams S -replicas R
//
// A stream stands in for a partition. Publishes are asynchronous, each one acknowledged by a majority of its replicas.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// switchEvery is how many records in a row go to one stream; a Kafka producer fills a batch per partition likewise.
const switchEvery = 512

func main() {
	url := flag.String("url", "", "servers, comma separated")
	records := flag.Int("records", 300_000, "records to publish")
	bytes := flag.Int("bytes", 1024, "bytes of a record")
	streams := flag.Int("streams", 6, "how many streams")
	replicas := flag.Int("replicas", 3, "replicas of each stream")
	pending := flag.Int("pending", 4000, "publishes in flight at most")
	flag.Parse()

	connection, err := nats.Connect(*url, nats.Timeout(10*time.Second))
	stopOn(err)
	defer connection.Close()

	var refused atomic.Int64
	onRefusal := func(jetstream.JetStream, *nats.Msg, error) { refused.Add(1) }
	js, err := jetstream.New(connection,
		jetstream.WithPublishAsyncMaxPending(*pending),
		jetstream.WithPublishAsyncErrHandler(onRefusal))
	stopOn(err)

	prefix := fmt.Sprintf("bench%d", time.Now().UnixNano())
	subjects := make([]string, *streams)
	for number := range subjects {
		subjects[number] = fmt.Sprintf("%s.%d", prefix, number)
		stream := jetstream.StreamConfig{
			Name:     fmt.Sprintf("%s_%d", prefix, number),
			Subjects: []string{subjects[number]},
			Replicas: *replicas,
			Storage:  jetstream.FileStorage,
		}
		// Servers that are healthy may not know of each other yet; then there are too few peers for the replicas.
		_, err := js.CreateStream(context.Background(), stream)
		for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); {
			time.Sleep(200 * time.Millisecond)
			_, err = js.CreateStream(context.Background(), stream)
		}
		stopOn(err)
	}

	value := make([]byte, *bytes)
	_, err = rand.Read(value[:*bytes/2])
	stopOn(err)
	began := time.Now()
	for number := 0; number < *records; number++ {
		if _, err := js.PublishAsync(subjects[number/switchEvery%*streams], value); err != nil {
			refused.Add(1)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * time.Minute):
		log.Fatal("acknowledgements are missing after two minutes")
	}
	seconds := time.Since(began).Seconds()
	stopOn(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"mb_s":   float64(*records) * float64(*bytes) / seconds / 1e6,
		"failed": refused.Load(),
	}))
}

func stopOn(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
