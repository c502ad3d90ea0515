package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// erasure is what `outbox erase` did, or would do.
type erasure struct {
	DryRun bool `json:"dry_run"`
	ops.Erasure
	Unreached []string `json:"unreached"`
}

// eraseFlags are the flags of `outbox erase`.
type eraseFlags struct {
	who
	aggregate  string
	allTenants bool
}

func (a *app) eraseCommand() *cobra.Command {
	var f eraseFlags
	var req ops.EraseRequest
	c := &cobra.Command{
		Use:   "erase (--aggregate TYPE/ID | --key ID ...) --reason TEXT",
		Short: "Erase the data of one person or thing: payloads, headers, errors, stored answers",
		Long: `erase removes the data of one aggregate, such as customer/42: payloads, headers and error texts of
its events, and payloads of their effects; with --key the stored answer of an idempotency key. Every
row stays, and so does the order of keys. An erased event that is published later is empty and has the
header ` + core.HeaderErased + `.

Events of several tenants need --tenant or --all-tenants. Events that wait need --open. erase reads the
whole table: raise --timeout for a large one, and repeat it if it is interrupted. In the end it lists
what it cannot reach. Exit code 4: something was left alone.`,
		Example: "  outbox erase --aggregate customer/42 --timeout 1h --reason 'request 4711'\n" +
			"  outbox erase --key 7f3a-91 --key-scope 'http/POST /orders' --reason 'request 4711'",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.aggregate != "" {
				var ok bool
				if req.AggregateType, req.AggregateID, ok = strings.Cut(f.aggregate, "/"); !ok ||
					req.AggregateType == "" || req.AggregateID == "" {
					return usage("--aggregate %s: it is TYPE/ID, such as customer/42", short(f.aggregate))
				}
			}
			switch {
			case f.aggregate == "" && len(req.KeyIDs) == 0:
				return usage("whose data is to be erased? --aggregate TYPE/ID, or --key ID")
			case slices.Contains(req.KeyIDs, ""):
				return usage("--key: it is empty")
			}
			if err := f.check(); err != nil {
				return err
			}
			req.Actor, req.Reason = f.actor, f.reason
			return a.withOutbox(c, func(ctx context.Context, s *session) error { return a.erase(ctx, s, f, req) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.aggregate, "aggregate", "", "the aggregate: TYPE/ID")
	flags.StringVar(&req.TenantID, "tenant", "", "only of this tenant")
	flags.BoolVar(&f.allTenants, "all-tenants", false, "of every tenant")
	flags.BoolVar(&req.Open, "open", false, "also events that wait: consumers get them empty")
	flags.StringArrayVar(
		&req.KeyIDs,
		"key",
		nil,
		"an idempotency key, as the client sent it; repeatable",
	)
	flags.StringVar(&req.KeyScope, "key-scope", "", "only of this scope; else the whole table is read")
	flags.StringVar(&a.effectsPrefix, "effects-prefix", "", "prefix of the tables of effects")
	flags.StringVar(&a.keysPrefix, "keys-prefix", "", "prefix of the tables of keys")
	f.dryRunFlag(c)
	f.flags(c)
	return c
}

func (a *app) erase(ctx context.Context, s *session, f eraseFlags, req ops.EraseRequest) error {
	plan, err := s.api.PlanErase(ctx, a.watched(req))
	if err != nil {
		return a.eraseError(ctx, s, req, err)
	}
	if f.dryRun {
		return a.print(erasure{true, plan, plan.Unreached()}, func() { a.printErasure(plan, true) })
	}
	if len(plan.Tenants) > 1 && !f.allTenants {
		return usage("%s are of tenants %s: name one with --tenant, or erase those of all with --all-tenants",
			f.aggregate, short(strings.Join(plan.Tenants, ", ")))
	}
	if !a.json {
		a.printErasure(plan, true)
	}
	ask := "erase the data of " + f.subject(req)
	if err := a.confirm(ctx, f.who, a.tables(s.db, "outbox"), ask); err != nil {
		return err
	}
	done, err := s.api.Erase(ctx, a.watched(req))
	if err != nil {
		if done.Erased+done.Effects+done.Answers > 0 {
			return exit(
				ExitPartial,
				"%d events, %d effects and %d answers are erased; repeat the command for the others: %w",
				done.Erased,
				done.Effects,
				done.Answers,
				a.eraseError(ctx, s, req, err),
			)
		}
		return a.eraseError(ctx, s, req, err)
	}
	rest := done.Unreached()
	err = a.print(erasure{false, done, rest}, func() {
		a.printErasure(done, false)
		a.sayf("\nnot reached:\n")
		for _, what := range rest {
			a.sayf("  %s\n", what)
		}
	})
	if left := done.Left + done.OpenEffects + done.HeldKeys; err == nil && left > 0 {
		return exit(ExitPartial, "%s, %s and %s are still worked on, and were left alone: repeat the command later",
			many(done.Left, "event"), many(done.OpenEffects, "effect"), many(done.HeldKeys, "key"))
	}
	return err
}

func (f *eraseFlags) subject(req ops.EraseRequest) string {
	of := f.aggregate
	if n := len(req.KeyIDs); n > 0 {
		if of != "" {
			of += " and "
		}
		of += many(n, "idempotency key")
	}
	if req.TenantID != "" {
		of += " of tenant " + req.TenantID
	}
	return of
}

// watched shows on a terminal how far the call is.
func (a *app) watched(req ops.EraseRequest) ops.EraseRequest {
	if a.Progress {
		req.Progress = func(e ops.Erasure) {
			if e.Parts%50 == 0 {
				a.note("%d parts of the tables read, %s found", e.Parts, many(e.Waiting+e.Dead+e.Ended, "event"))
			}
		}
	}
	return req
}

func (a *app) eraseError(ctx context.Context, s *session, req ops.EraseRequest, err error) error {
	if len(req.KeyIDs) > 0 && codeOf(err) == ExitFailed {
		return s.db.withTables(ctx, kindNamed("keys"), a.schema, a.keysPrefix, err)
	}
	return err
}

func (a *app) printErasure(e ops.Erasure, plan bool) {
	t := newTable("WHAT|FOUND|ERASED|LEFT ALONE")
	row := func(what string, found, erased, left int) {
		if plan {
			t.add(what, counted(int64(found), e.Capped), "-", strconv.Itoa(left))
		} else {
			t.add(what, strconv.Itoa(found), strconv.Itoa(erased), strconv.Itoa(left))
		}
	}
	row("events", e.Waiting+e.Dead+e.Ended, e.Erased, e.Left)
	row("differences in the audit", e.Audit, e.Audit, 0)
	row("effects", e.Effects+e.OpenEffects, e.Effects, e.OpenEffects)
	row("answers of idempotency keys", e.Answers+e.HeldKeys, e.Answers, e.HeldKeys)
	t.write(a.Out)
	if len(e.Tenants) > 1 {
		a.sayf("tenants: %s\n", short(strings.Join(e.Tenants, ", ")))
	}
	a.sayf("events: %d waiting, %d dead, %d done or discarded", e.Waiting, e.Dead, e.Ended)
	if e.Already > 0 {
		a.sayf("; %d were erased before", e.Already)
	}
	a.sayf("\n")
}
