package walrelay

import "testing"

// A history file has a line for each timeline that ended, and perhaps comments.
func TestLastSwitch(t *testing.T) {
	for history, want := range map[string]string{
		"": "0/0",
		"1\t0/3000098\tno recovery target specified\n":                                    "0/3000098",
		"1\t0/3000098\tno recovery target specified\n\n# x\n2\t5/A0\tbefore 2026-11-30\n": "5/A0",
	} {
		if at, err := lastSwitch([]byte(history)); err != nil || at.String() != want {
			t.Errorf("%q: %s, %v", history, at, err)
		}
	}
	if _, err := lastSwitch([]byte("1\tx\ty\n")); err == nil {
		t.Error("a position that is none gives no error")
	}
}
