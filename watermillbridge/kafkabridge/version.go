package kafkabridge

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
)

// ErrSaramaLoses: this program was built with a version of Sarama that loses messages. Before 1.48
// its idempotent producer numbers messages wrongly if several are in flight and a partition's
// leader changes. The broker then takes a new message for a copy of an older one, and acknowledges
// it without storing it. The error names the remedy: go get github.com/IBM/sarama@latest.
var ErrSaramaLoses = errors.New("kafkabridge: this version of Sarama loses messages")

const saramaModule = "github.com/IBM/sarama"

// minSaramaMinor is the first minor version of Sarama 1 that keeps one request in flight for each
// partition.
const minSaramaMinor = 48

// checkSarama reads the build information and refuses a Sarama that is too old. It does not refuse
// an unknown version. The version is unknown in a program without build information (test binaries
// do not list their modules), and if Sarama is replaced by a folder or a fork.
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

// tooOld reports whether version is known to be below 1.48. A pre-release or a commit counts as the
// version that it leads to.
func tooOld(version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && (major == "0" && n > 0 || major == "1" && n < minSaramaMinor)
}
