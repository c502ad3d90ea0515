package inboxtest_test

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func ExampleNewStore() {
	store := inboxtest.NewStore()
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice",
		Transactor: outboxtest.NewRepository().Transactor(), Store: store,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handle := func(context.Context, core.Tx, inbox.Message) error { return nil }
	for range 2 {
		res := in.Process(context.Background(), inbox.Message{ID: "the same id twice"}, handle)
		fmt.Println(res.Action)
	}
	fmt.Println(store.Processed())
	// Output:
	// ack
	// ack
	// 1
}
