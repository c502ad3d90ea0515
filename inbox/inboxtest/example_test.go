package inboxtest_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/inbox/inboxtest"
)

func ExampleNewStore() {
	store := inboxtest.NewStore()
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Transactor: outboxtest.NewRepository().Transactor(), Store: store,
		Handler: func(*message.Message) string { return "invoice" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := in.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	for range 2 {
		_, err = handler(message.NewMessage("the same id twice", nil))
	}
	fmt.Println(store.Processed(), err)
	// Output: 1 <nil>
}
