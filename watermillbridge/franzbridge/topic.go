package franzbridge

import (
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// checkTopic refuses a topic that Kafka has no name for. Its event would be dead as soon as it is
// relayed, and hold up its key.
func checkTopic(topic string) error {
	illegal := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}
	if topic == "" || topic == "." || topic == ".." || len(topic) > 249 || strings.ContainsFunc(topic, illegal) {
		return core.Permanent(fmt.Errorf("franzbridge: topic %.100q is no name for Kafka, which has 1 to 249 "+
			"letters, digits, dots, _ and -, and not dots alone", topic))
	}
	return nil
}
