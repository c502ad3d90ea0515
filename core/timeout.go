package core

import "time"

// dbTimeout bounds each statement that no caller bounds.
const dbTimeout = 15 * time.Second
