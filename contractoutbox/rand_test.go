package contractoutbox_test

import "math/rand"

// randSource is the source of random numbers that testing/quick takes.
type randSource = rand.Rand
