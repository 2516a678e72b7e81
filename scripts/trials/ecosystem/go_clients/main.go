// Runs sarama or kafka-go, clients for Go, against a cluster, and says what it has found out: go_clients CLIENT BROKERS.
//
// A line out is "ok" and what was done. The first thing that is not as it should be ends it with status 1.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	brokers := strings.Split(os.Args[2], ",")
	if os.Args[1] == "sarama" {
		runSarama(brokers)
	} else {
		runKafkaGo(brokers)
	}
}

func done(format string, words ...any) {
	fmt.Printf("ok "+format+"\n", words...)
}

// must ends the program if something was refused.
func must(what string, err error) {
	if err != nil {
		fmt.Printf("failed %s: %v\n", what, err)
		os.Exit(1)
	}
}

// eventually waits until something holds, or ends the program.
func eventually(what string, holds func() bool) {
	for end := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		check(time.Now().Before(end), "%s does not come", what)
	}
}

// check ends the program if something is not so.
func check(holds bool, format string, words ...any) {
	if !holds {
		fmt.Printf("wrong "+format+"\n", words...)
		os.Exit(1)
	}
}
