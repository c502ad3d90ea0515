package core_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// spy returns an Observer that records every call with its arguments.
func spy(name string, calls *[]string) *core.Observer {
	o := &core.Observer{}
	v := reflect.ValueOf(o).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		v.Field(i).Set(reflect.MakeFunc(field.Type, func(args []reflect.Value) []reflect.Value {
			call := name + " " + field.Name
			for _, a := range args {
				call += fmt.Sprintf(" %v", a)
			}
			*calls = append(*calls, call)
			return nil
		}))
	}
	return o
}

// callAll calls every field with arguments that differ.
func callAll(o *core.Observer) {
	v := reflect.ValueOf(o).Elem()
	for _, f := range v.Fields() {
		args := make([]reflect.Value, f.Type().NumIn())
		for j := range args {
			args[j] = reflect.New(f.Type().In(j)).Elem()
			switch args[j].Kind() {
			case reflect.String:
				args[j].SetString(fmt.Sprint("s", j))
			case reflect.Int, reflect.Int64:
				args[j].SetInt(int64(10 + j))
			case reflect.Bool:
				args[j].SetBool(true)
			}
			if args[j].Type() == reflect.TypeFor[error]() {
				args[j].Set(reflect.ValueOf(errors.New("e")))
			}
		}
		f.Call(args)
	}
}

func TestTeeObserver(t *testing.T) {
	fields := reflect.TypeFor[core.Observer]().NumField()
	var alone, both []string
	callAll(spy("x", &alone))
	tee := core.TeeObserver(spy("x", &both), nil, &core.Observer{}, spy("y", &both))
	if n := reflect.ValueOf(tee).Elem().NumField(); n != fields {
		t.Fatal(n)
	}
	callAll(tee)
	if len(alone) != fields || len(both) != 2*fields {
		t.Fatalf("%d calls alone, %d by the tee, want %d and %d", len(alone), len(both), fields, 2*fields)
	}
	for i, call := range alone {
		if !slices.Equal(both[2*i:2*i+2], []string{call, "y" + call[1:]}) {
			t.Errorf("%q, want %q for x, then y", both[2*i:2*i+2], call)
		}
	}
	callAll(core.TeeObserver())
	core.TeeObserver(nil).Marked(1, time.Second, nil)
}

// The default logger follows slog's default, even if that is set later, and passes on warnings and
// errors.
func TestDefaultLogger(t *testing.T) {
	l := core.DefaultLogger().With("a", 1).WithGroup("g").With("b", 2)
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var out bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	l.Info("quiet")
	l.Warn("loud", "c", 3)
	l.Error("louder")
	got := out.String()
	if strings.Contains(got, "quiet") || !strings.Contains(got, "msg=loud a=1 g.b=2 g.c=3") ||
		!strings.Contains(got, "msg=louder") {
		t.Errorf("logged %q", got)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})))
	out.Reset()
	if l.Warn("loud"); out.Len() > 0 {
		t.Errorf("logged %q below the level of slog's default", out.String())
	}
}
