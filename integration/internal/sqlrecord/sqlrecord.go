// Package sqlrecord records the statements that go through a database/sql driver, with their
// arguments.
package sqlrecord

import (
	"bytes"
	"context"
	"database/sql/driver"
	"sync"
)

// Call is one statement.
type Call struct {
	Query string
	Args  []any
}

// Recorder collects statements between Start and Stop. The zero value is ready.
type Recorder struct {
	mu    sync.Mutex
	on    bool
	calls []Call
}

// Start begins a new recording.
func (r *Recorder) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on, r.calls = true, nil
}

// Stop ends the recording and returns it.
func (r *Recorder) Stop() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = false
	return r.calls
}

func (r *Recorder) record(query string, args []driver.NamedValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		return
	}
	c := Call{Query: query}
	for _, a := range args {
		if b, ok := a.Value.([]byte); ok { // the caller may use it for something else afterwards
			a.Value = bytes.Clone(b)
		}
		c.Args = append(c.Args, a.Value)
	}
	r.calls = append(r.calls, c)
}

// Connector wraps c. Its driver must run statements without preparing them.
func (r *Recorder) Connector(c driver.Connector) driver.Connector { return connector{c, r} }

type connector struct {
	driver.Connector
	r *Recorder
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner, c.r}, nil
}

type conn struct {
	driver.Conn
	r *Recorder
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.r.record(query, args)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.r.record(query, args)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *conn) ResetSession(ctx context.Context) error {
	if s, ok := c.Conn.(driver.SessionResetter); ok {
		return s.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	if v, ok := c.Conn.(driver.Validator); ok {
		return v.IsValid()
	}
	return true
}
