package contractoutbox_test

import "math/rand"

// randSource is what testing/quick takes.
type randSource = rand.Rand
