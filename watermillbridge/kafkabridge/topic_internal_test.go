package kafkabridge

import (
	"strings"
	"testing"
)

func TestCheckTopic(t *testing.T) {
	t.Parallel()
	for topic, legal := range map[string]bool{
		"orders": true, "Orders.placed_v1-eu": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, "a b": false, "a/b": false, "größe": false, strings.Repeat("x", 250): false,
	} {
		if err := checkTopic(topic); (err == nil) != legal {
			t.Errorf("%q: %v, want legal %v", topic, err, legal)
		}
	}
}
