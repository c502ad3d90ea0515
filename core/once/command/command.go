package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/once"
)

const defaultTTL = 30 * 24 * time.Hour

// Commands runs commands once. Create it with New and use it with Run, RunTx and RunInTx. It is
// safe for use by several goroutines.
type Commands struct {
	runner *once.Runner
	names  program.Names
}

// New returns Commands that keep their keys by cfg, or an error that names every problem of cfg.
// The default of its TTL, which is how long results are remembered, is 30 days here. It must be
// longer than any event or request may be repeated. RefuseStale is for commands whose outcome is
// unknown when their process has died.
func New(cfg once.Config) (*Commands, error) {
	cfg.TTL = cmp.Or(cfg.TTL, defaultTTL)
	runner, err := once.New(cfg)
	if err != nil {
		return nil, errtext.Errorf("command: %w", err)
	}
	return &Commands{runner: runner}, nil
}

// Runner returns the Runner that keeps the keys. Its Run deletes results whose time to live is
// over.
func (c *Commands) Runner() *once.Runner { return c.runner }

// Command describes work that is done once.
type Command struct {
	// Type of the command, such as "create-order". It is stored, so never derive it from the name
	// of a Go type. Required.
	Type string
	// Tenant of the command. At most once.MaxTenant bytes; may be empty.
	Tenant string
	// Key names the command within its tenant and type: the client's key, or the key of an event,
	// see [EventKey]. Required, at most once.MaxID bytes. It is the core.HeaderCausationID of the
	// events that the function publishes with its context.
	Key string
	// Input distinguishes a repetition from another command under the same key. The other command
	// is refused. Input is hashed and never stored: a []byte unchanged, any other value as JSON.
	// Nil: it is not compared.
	Input any
}

// EventKey returns the Key of a command that an event asks for: "QuoteAccepted:018f...".
func EventKey(eventType, eventID string) string { return eventType + ":" + eventID }

// Errors of this package that callers check with errors.Is, in addition to package once's. Report
// once.ErrFingerprintMismatch to a client: the key was used for other work.
var (
	// ErrInTransaction: Run was called with a context that carries a transaction. The result of Run
	// would stay if the transaction is rolled back. Use RunTx instead. Nothing was run.
	ErrInTransaction = errors.New("command: in a transaction use RunTx")

	// ErrEncoding: the input or the result is not JSON, or the stored result no longer fits the
	// type.
	ErrEncoding = errors.New("command: not encodable")
)

// Run runs fn and keeps its result as JSON. If the command was done before, it returns the kept
// result, and replayed is true. It is the lease form, for work whose effects are not in the
// database of the store: see once.Runner.Do, whose errors it returns. After the death of a process
// its lease ends, and the command is run again. If RefuseStale of the once.Config is set, it is
// refused with once.ErrAbandoned instead.
func Run[T any](ctx context.Context, c *Commands, cmd Command,
	fn func(ctx context.Context) (T, error),
) (result T, replayed bool, err error) {
	if _, ok := core.TxFromContext(ctx); ok {
		return result, false, ErrInTransaction
	}
	return run(cmd, fn, func(key once.Key, fp once.Fingerprint, work work) (once.Result, bool, error) {
		c.register(ctx, key.Scope)
		return c.runner.Do(ctx, key, fp, work)
	})
}

// RunTx is Run in the caller's transaction: the key, the changes of fn in tx and the result commit
// together. If tx is nil, RunTx uses the transaction that ctx carries, as in a handler of the
// inbox. After an error the caller must roll back. See once.Runner.DoTx for the errors.
func RunTx[T any](ctx context.Context, c *Commands, tx core.Tx, cmd Command,
	fn func(ctx context.Context) (T, error),
) (result T, replayed bool, err error) {
	if tx == nil {
		tx, _ = core.TxFromContext(ctx)
	}
	return run(cmd, fn, func(key once.Key, fp once.Fingerprint, work work) (once.Result, bool, error) {
		return c.runner.DoTx(ctx, tx, key, fp, work)
	})
}

// RunInTx is RunTx in a transaction of t that it opens and ends. If the transaction failed only
// because of other transactions, RunInTx runs it again as a whole. See once.Runner.RunInTx.
func RunInTx[T any](ctx context.Context, c *Commands, t core.Transactor, cmd Command,
	fn func(ctx context.Context, tx core.Tx) (T, error),
) (result T, replayed bool, err error) {
	if fn == nil {
		return result, false, errNoFunc
	}
	var tx core.Tx
	inner := func(ctx context.Context) (T, error) { return fn(ctx, tx) }
	return run(cmd, inner, func(key once.Key, fp once.Fingerprint, work work) (once.Result, bool, error) {
		if _, ok := core.TxFromContext(ctx); !ok { // that may hold the only connection
			c.register(ctx, key.Scope)
		}
		return c.runner.RunInTx(ctx, t, key, fp, func(ctx context.Context, opened core.Tx) (once.Result, error) {
			tx = opened
			return work(ctx)
		})
	})
}

var errNoFunc = errors.New("command: the function is nil")

type work = func(ctx context.Context) (once.Result, error)

// run translates a command for do, and the result back.
func run[T any](cmd Command, fn func(ctx context.Context) (T, error),
	do func(once.Key, once.Fingerprint, work) (once.Result, bool, error),
) (result T, replayed bool, err error) {
	var zero T
	if fn == nil {
		return zero, false, errNoFunc
	}
	fp, err := cmd.fingerprint()
	if err != nil {
		return zero, false, err
	}
	key := once.Key{Tenant: cmd.Tenant, ID: cmd.Key}
	if cmd.Type != "" {
		key.Scope = once.Scope("command", cmd.Type)
	}
	res, replayed, err := do(key, fp, func(ctx context.Context) (once.Result, error) {
		var err error
		if result, err = fn(cause.With(ctx, cause.Of(ctx).Next(cmd.Key))); err != nil {
			return once.Result{}, err
		}
		data, err := json.Marshal(result)
		if err != nil {
			return once.Result{}, fmt.Errorf("%w: result of %s: %w", ErrEncoding, key, err)
		}
		return once.Result{Data: data, ContentType: "application/json"}, nil
	})
	if err != nil {
		return zero, false, err
	}
	if !replayed {
		return result, false, nil
	}
	var kept T
	if err := json.Unmarshal(res.Data, &kept); err != nil {
		return zero, true, fmt.Errorf("%w: stored result of %s: %w", ErrEncoding, key, err)
	}
	return kept, true, nil
}

func (c Command) fingerprint() (once.Fingerprint, error) {
	switch in := c.Input.(type) {
	case nil:
		return once.Fingerprint{}, nil
	case []byte:
		return once.FingerprintOf(in), nil
	default:
		b, err := json.Marshal(in)
		if err != nil {
			return once.Fingerprint{}, fmt.Errorf("%w: input of %.64q: %w", ErrEncoding, c.Type, err)
		}
		return once.FingerprintOf(b), nil
	}
}
