package kafkabridge

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
)

// ErrSaramaLoses: this program was built with a Sarama that loses messages. Before 1.48 its
// idempotent producer numbers messages wrongly when several are on their way and a partition's
// leader changes: the broker takes a new message for the copy of an older one, and acknowledges
// what it does not store. The remedy is in the error: go get github.com/IBM/sarama@latest.
var ErrSaramaLoses = errors.New("kafkabridge: this version of Sarama loses messages")

const saramaModule = "github.com/IBM/sarama"

// minSaramaMinor is the minor version of Sarama 1 that is the first to keep one request in flight
// for each partition.
const minSaramaMinor = 48

// checkSarama refuses a Sarama that is too old, as the build information tells. What cannot be
// known is not refused: a program without build information (test binaries carry none of their
// modules), and a replacement that is a folder or a fork, whose version says nothing.
func checkSarama(info *debug.BuildInfo) error {
	if info == nil {
		return nil
	}
	for _, m := range info.Deps {
		if m == nil || m.Path != saramaModule {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Path != saramaModule || !tooOld(m.Version) {
			return nil
		}
		return fmt.Errorf("%w: it is %s, and needs to be v1.%d.0 or newer: go get %s@latest (a replace directive "+
			"may hold it back)",
			ErrSaramaLoses, m.Version, minSaramaMinor, saramaModule)
	}
	return nil
}

// tooOld reports whether version is known to be below 1.48. Of pre-releases and commits the number
// that they lead to counts.
func tooOld(version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && (major == "0" && n > 0 || major == "1" && n < minSaramaMinor)
}
