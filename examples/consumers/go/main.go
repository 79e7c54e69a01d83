// Command consumer follows reservation results on the topic, with franz-go.
//
// It records the events that it has handled in a file, written before the offset is committed: after a crash in between, events come
// again and are recognised. In production that file is a table, written in the transaction that does the work.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

// event has the members that this program needs. encoding/json passes over all others, which is what the contract asks for.
type event struct {
	RequestID   string `json:"requestId"`
	Test        bool   `json:"test"`
	Reservation struct {
		PMSReservationID string `json:"pmsReservationId"`
		Problem          struct {
			Code string `json:"code"`
		} `json:"problem"`
	} `json:"reservation"`
}

// handled is the last revision of each submission that was handled, and the file that keeps it.
type handled struct {
	revisions map[string]int
	file      *os.File
}

func open(path string) (*handled, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	kept := &handled{map[string]int{}, file}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		kept.see(lines.Text())
	}
	return kept, nil
}

// see tells whether the event of this id is newer than all of its submission that were seen: an id is `<requestId>.<revision>`.
func (h *handled) see(id string) bool {
	at := strings.LastIndexByte(id, '.')
	if at < 0 {
		return false
	}
	revision, err := strconv.Atoi(id[at+1:])
	if err != nil || revision <= h.revisions[id[:at]] {
		return false
	}
	h.revisions[id[:at]] = revision
	return true
}

func (h *handled) handle(record *kgo.Record) error {
	headers := map[string]string{}
	for _, one := range record.Headers {
		headers[one.Key] = string(one.Value)
	}
	var said event
	if err := json.Unmarshal(record.Value, &said); err != nil || said.Test || !known[headers["ce_type"]] {
		return nil // not for this program, today
	}
	if !h.see(headers["ce_id"]) {
		return nil
	}
	fmt.Println(headers["ce_type"], said.RequestID, said.Reservation.PMSReservationID+said.Reservation.Problem.Code)
	_, err := fmt.Fprintln(h.file, headers["ce_id"])
	return err
}

var known = map[string]bool{
	"reservation.confirmed.v1": true,
	"reservation.rejected.v1":  true,
	"reservation.failed.v1":    true,
	"reservation.in_doubt.v1":  true,
	"reservation.cancelled.v1": true,
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func run(ctx context.Context) error {
	kept, err := open(setting("HANDLED", "handled.txt"))
	if err != nil {
		return err
	}
	defer kept.file.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(setting("KAFKA", "localhost:9092"), ",")...),
		kgo.ConsumeTopics(setting("TOPIC", "reservations.results")),
		kgo.ConsumerGroup(setting("GROUP", "bookings")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		var failed error
		fetches.EachRecord(func(record *kgo.Record) {
			if failed == nil {
				failed = kept.handle(record)
			}
		})
		if failed != nil {
			return failed
		}
		if err := kept.file.Sync(); err != nil {
			return err
		}
		if err := client.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
			log.Print(err) // they come again
		}
		client.AllowRebalance()
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
