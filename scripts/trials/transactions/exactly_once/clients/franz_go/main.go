// The worker of franz-go, with its sessions of groups and transactions. Its job, and the lines that it writes, are
// described in programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const recordsMax = 100

type job struct {
	Bootstrap string `json:"bootstrap"`
	Input     string `json:"input"`
	Output    string `json:"output"`
	Group     string `json:"group"`
	History   string `json:"history"`
	BeganMs   int64  `json:"began_ms"`
	Name      string `json:"name"`
	Life      string `json:"life"`
}

type worker struct {
	job
	history      *os.File
	session      *kgo.GroupTransactSession
	sequences    map[int32]int
	lock         sync.Mutex
	onItsWay     map[int32]bool
	transactions int
	name         string
}

// tell writes a line with one write, so that no other process' line comes between.
func (w *worker) tell(format string, values ...any) {
	line := "\n" + fmt.Sprintf(format, values...) + "\n"
	if _, err := w.history.WriteString(line); err != nil {
		fail(err)
	}
}

func (w *worker) nowMs() int64 { return time.Now().UnixMilli() - w.BeganMs }

func fail(err error) {
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", " | "))
	os.Exit(3)
}

type sent struct {
	record   *kgo.Record
	sequence int
	err      error
}

// tellPosition tells where a partition is read from, if it was assigned or left since the last record.
func (w *worker) tellPosition(r *kgo.Record) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.onItsWay[r.Partition] {
		w.onItsWay[r.Partition] = true
		w.tell(`{"type":"position","consumer":"%s","partition":"%s-%d","offset":%d}`, w.Life, w.Input, r.Partition, r.Offset)
	}
}

// beginAnywhere notes that all partitions are read from another place from now on.
func (w *worker) beginAnywhere() {
	w.lock.Lock()
	defer w.lock.Unlock()
	clear(w.onItsWay)
}

// copy works off some records in the transaction that has begun, up to the question for its end.
func (w *worker) copy(ctx context.Context, fetches kgo.Fetches) error {
	var all []*sent
	var waiting sync.WaitGroup
	fetches.EachRecord(func(r *kgo.Record) {
		words := strings.SplitN(string(r.Value), " ", 3)
		w.tellPosition(r)
		w.tell(`{"type":"consumed","consumer":"%s","partition":"%s-%d","offset":%d,"producer":"%s","sequence":%s,"transaction":"%s"}`,
			w.Life, w.Input, r.Partition, r.Offset, words[0], words[1], w.name)
		sequence := w.sequences[r.Partition]
		w.sequences[r.Partition]++
		w.tell(`{"type":"invoked","producer":"%s","partition":"%s-%d","sequence":%d,"transaction":"%s"}`,
			w.Life, w.Output, r.Partition, sequence, w.name)
		value := fmt.Sprintf("%s %d from %s-%d@%d", w.Life, sequence, w.Input, r.Partition, r.Offset)
		one := &sent{sequence: sequence}
		all = append(all, one)
		waiting.Add(1)
		record := &kgo.Record{Topic: w.Output, Partition: r.Partition, Value: []byte(value)}
		w.session.Produce(ctx, record, func(r *kgo.Record, err error) {
			one.record, one.err = r, err
			waiting.Done()
		})
	})
	waiting.Wait()
	for _, one := range all {
		if one.err != nil {
			return one.err
		}
		offset := ""
		if one.record.Offset >= 0 {
			offset = fmt.Sprintf(`,"offset":%d`, one.record.Offset)
		}
		w.tell(`{"type":"acknowledged","producer":"%s","partition":"%s-%d","sequence":%d%s}`,
			w.Life, w.Output, one.record.Partition, one.sequence, offset)
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if count := len(p.Records); count > 0 {
			w.tell(`{"type":"offset_sent","transaction":"%s","group":"%s","partition":"%s-%d","start":%d,"offset":%d}`,
				w.name, w.Group, w.Input, p.Partition, p.Records[0].Offset, p.Records[count-1].Offset+1)
		}
	})
	return nil
}

func (w *worker) work(ctx context.Context) {
	fetches := w.session.PollRecords(ctx, recordsMax)
	if fetches.IsClientClosed() || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if fetches.NumRecords() == 0 {
		return
	}
	w.transactions++
	w.name = fmt.Sprintf("%s/%d", w.Life, w.transactions)
	w.tell(`{"type":"begun","transaction":"%s","at_ms":%d}`, w.name, w.nowMs())
	if err := w.session.Begin(); err != nil {
		fail(err)
	}
	// Not the context that ends the polling: the transaction comes to its end first.
	failed := w.copy(context.Background(), fetches)
	if failed != nil {
		fmt.Println("again:", failed)
	}
	w.tell(`{"type":"ending","transaction":"%s","commit":%t,"at_ms":%d}`, w.name, failed == nil, w.nowMs())
	committed, err := w.session.End(context.Background(), kgo.TransactionEndTry(failed == nil))
	outcome := "aborted"
	if committed {
		outcome = "committed"
	} else if err != nil {
		outcome = "unknown"
	}
	w.tell(`{"type":"ended","transaction":"%s","outcome":"%s","at_ms":%d}`, w.name, outcome, w.nowMs())
	if err != nil {
		fail(err)
	}
	if !committed {
		w.beginAnywhere()
	}
}

func main() {
	told := bufio.NewReader(os.Stdin)
	line, err := told.ReadBytes('\n')
	if err != nil {
		fail(err)
	}
	w := &worker{sequences: map[int32]int{}, onItsWay: map[int32]bool{}}
	if err := json.Unmarshal(line, &w.job); err != nil {
		fail(err)
	}
	if w.history, err = os.OpenFile(w.History, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		fail(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for {
			if _, err := told.ReadByte(); err != nil {
				stop()
				return
			}
		}
	}()
	w.session, err = kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(w.Bootstrap, ",")...),
		kgo.ClientID(w.Life),
		kgo.TransactionalID(w.Name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.ConsumerGroup(w.Group),
		kgo.ConsumeTopics(w.Input),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { w.beginAnywhere() }),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		fail(err)
	}
	w.tell(`{"type":"consumer","consumer":"%s","read_committed":true}`, w.Life)
	for ctx.Err() == nil {
		w.work(ctx)
	}
	w.session.Close()
}
