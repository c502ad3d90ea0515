package core_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestKeyIDsAreDistinct(t *testing.T) {
	seen := map[core.KeyID][3]string{}
	parts := []string{"", "a", "b", "ab", "A", "a ", "\x01", "aa"}
	for _, tenant := range parts {
		for _, topic := range parts {
			for _, key := range parts {
				k := core.NewKeyID(tenant, topic, key)
				if other, twice := seen[k]; twice {
					t.Errorf("%q and %q share a KeyID", other, [3]string{tenant, topic, key})
				}
				seen[k] = [3]string{tenant, topic, key}
				prefix := core.KeyIDPrefix(topic)
				if k != core.NewKeyID(tenant, topic, key) || k.IsZero() || !bytes.Equal(k[:4], prefix[:]) {
					t.Errorf("key id %x of topic %q with prefix %x", k, topic, prefix)
				}
			}
		}
	}
}

func TestReplayKeyID(t *testing.T) {
	k, m := core.NewKeyID("", "t", "k"), core.NewKeyID("", "t", "m")
	r := core.ReplayKeyID(k)
	if r == k || r == core.ReplayKeyID(m) || r != core.ReplayKeyID(k) || !bytes.Equal(r[:4], k[:4]) {
		t.Errorf("key id %x, replay %x", k, r)
	}
	if !(core.KeyID{}).IsZero() {
		t.Error("the zero KeyID is not zero")
	}
}

// The bytes of key ids and row ids are in the tables of users, so they must never change.
func TestStoredBytesAreStable(t *testing.T) {
	k := core.NewKeyID("acme", "orders", "order/7")
	if got, want := fmt.Sprintf("%x", k), "1c168adbcee0f1be5ef7f2cd971a6963"; got != want {
		t.Errorf("key id %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%x", core.ReplayKeyID(k)), "1c168adb62ac6a57acfba64f665a89fe"; got != want {
		t.Errorf("replay %s, want %s", got, want)
	}
	if got, want := rowID(t, "018f3e2a-7b1c-7def-8123-456789abcdef", "orders").String(),
		"018f3e2a-7b1c-8def-8a7a-600d26bce434"; got != want {
		t.Errorf("row id %s, want %s", got, want)
	}
}

// In JSON a KeyID is 32 hexadecimal digits, as databases show it.
func TestKeyIDText(t *testing.T) {
	k := core.NewKeyID("", "t", "k")
	text, err := json.Marshal(k)
	if err != nil || string(text) != fmt.Sprintf(`"%x"`, k[:]) {
		t.Errorf("%s, %v", text, err)
	}
	var back core.KeyID
	if err := json.Unmarshal(text, &back); err != nil || back != k {
		t.Errorf("%x, %v; want %x", back, err, k)
	}
	for _, wrong := range []string{`""`, `"12"`, `"` + strings.Repeat("x", 32) + `"`} {
		if err := json.Unmarshal([]byte(wrong), &back); err == nil || back != k {
			t.Errorf("%s is taken: %x, %v", wrong, back, err)
		}
	}
}
