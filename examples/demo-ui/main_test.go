package main

import (
	"context"
	"os"
	"testing"
	"time"
)

// The program of the test is the shop too: see kills.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// The page shows the orders of a shop that was started, and one that is killed is started again.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	page, err := openPage(ctx, dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- kills(ctx, dir) }()
	for end, said := time.Now().Add(30*time.Second), false; !said; {
		if said, err = page.says(ctx, "1 of 1"); err != nil || time.Now().After(end) {
			t.Fatalf("no relay of the shop is seen: %v", err)
		}
	}
	cancel()
	<-ended
	page.close()
}
