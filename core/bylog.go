package core

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// LogReader is what the column claimed_by has in rows that a reader of the database's log
// publishes. See Config.RelayedByLog. A publication of PostgreSQL selects them by it. No relay has
// this name, because the names of relays end in a random suffix.
const LogReader = "log"

// maxLogPayload leaves room for headers and key below the 1 MiB that Kafka takes by default. A
// reader of the log cannot go past a message that Kafka refuses.
const maxLogPayload = 1<<20 - 128<<10

// byLog reports whether a reader of the log publishes the events of the topic.
func (c *Config) byLog(topic string) bool {
	return c.RelayedByLog && !strings.HasPrefix(topic, ServedTopicPrefix)
}

// validateLog reports settings that contradict RelayedByLog.
func (c *Config) validateLog(bad func(format string, args ...any)) {
	if c.Retention.DeleteOnSuccess {
		bad("Retention.DeleteOnSuccess and RelayedByLog are both set: nobody marks the rows, so they are deleted by " +
			"their age. Set Retention.Keep")
	}
	if c.BacklogLimit != (BacklogLimit{}) {
		bad("BacklogLimit and RelayedByLog are both set: the table does not know which events are published. Watch " +
			"the lag of the program that reads the log")
	}
	if c.Publisher == nil {
		return
	}
	tl, ok := c.Publisher.(TopicLister)
	if !ok || tl.Topics() == nil {
		bad("Publisher and RelayedByLog are both set: the program that reads the log publishes. Leave out one of "+
			"them, or give a Router that handles only topics of %q", ServedTopicPrefix)
		return
	}
	for _, t := range tl.Topics() {
		if !strings.HasPrefix(t, ServedTopicPrefix) {
			bad("Publisher takes topic %q, which the program that reads the log publishes, because RelayedByLog is "+
				"set: leave one of them out", clip(t, 64))
		}
	}
}

// checkByLog returns an error for an event that a reader of the log cannot publish as it is.
func checkByLog(e Event) error {
	if e.Delay > 0 {
		return fmt.Errorf("%w: type %q for topic %q has a Delay of %s, and Config.RelayedByLog is set: the program "+
			"that reads the log publishes it at once", ErrInvalidEvent, clip(e.Type, 64), clip(e.Topic, 64), e.Delay)
	}
	return nil
}

// cleanOnly is Run with RelayedByLog and without a Publisher: the janitor alone.
func (o *Outbox) cleanOnly(ctx context.Context) error {
	if err := o.checkTables(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	if !o.cfg.DisableJanitor {
		wg.Go(func() { newJanitor(o).clean(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}
