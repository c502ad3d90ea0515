package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

type options struct {
	orders, kills int
	seed          uint64
	limit         time.Duration
	json          bool
	tamper        tamper
}

// parseOptions reads the flags. ORDERS and KILLS of the environment, which `make demo ORDERS=5000`
// sets, replace their defaults.
func parseOptions(args []string, getenv func(string) string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	orders, err1 := envInt(getenv, "ORDERS", 300)
	kills, err2 := envInt(getenv, "KILLS", 5)
	if err := errors.Join(err1, err2); err != nil {
		return o, err
	}
	flags.IntVar(&o.orders, "orders", orders, "how many orders the shop takes")
	flags.IntVar(&o.kills, "kills", kills, "how often it is killed meanwhile")
	flags.Uint64Var(&o.seed, "seed", 0, "chooses the moments of the kills (default: random)")
	flags.DurationVar(&o.limit, "timeout", 0, "give up after this long (default: 30s, and 10ms for each order)")
	flags.BoolVar(&o.json, "json", false, "print the ledger as JSON, and the progress to standard error")
	flags.StringVar((*string)(&o.tamper), "tamper", "", "remove a row of `outbox`, orders or ledger, to see that it "+
		"is noticed")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.orders < 1 || o.orders > 1_000_000 {
		return o, fmt.Errorf("%d orders: from 1 to 1000000 will do", o.orders)
	}
	if o.kills < 0 || o.kills > o.orders {
		return o, fmt.Errorf("%d kills: from 0 to the number of orders, %d, will do", o.kills, o.orders)
	}
	if o.limit < 0 {
		return o, fmt.Errorf("timeout %s is negative", o.limit)
	}
	if err := o.tamper.valid(); err != nil {
		return o, err
	}
	if o.tamper == tamperOutbox && o.kills == 0 {
		return o, errors.New("to remove a row of the outbox the shop must be killed at least once")
	}
	if o.limit == 0 {
		o.limit = 30*time.Second + time.Duration(o.orders)*10*time.Millisecond
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	return o, nil
}

func envInt(getenv func(string) string, name string, def int) (int, error) {
	s := getenv(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%s=%q in the environment is not a number", name, s)
	}
	return n, nil
}
