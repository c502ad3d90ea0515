package kafkabridge

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// checkTopic refuses a topic that Kafka has no name for. Its event would be dead as soon as it is
// relayed, and hold up its key.
func checkTopic(topic string) error {
	legal := topic != "" && topic != "." && topic != ".." && len(topic) <= 249
	for _, c := range []byte(topic) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		legal = legal && (letter || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !legal {
		return core.Permanent(fmt.Errorf("kafkabridge: topic %.100q is no name for Kafka, which has 1 to 249 "+
			"letters, digits, dots, _ and -, and not dots alone", topic))
	}
	return nil
}
