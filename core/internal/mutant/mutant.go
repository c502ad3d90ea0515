// Package mutant names deliberate mistakes that can be built into the code to see that its tests
// notice them: how good tests are is known only by what they refuse. In a normal build none is
// active and the compiler removes them all; with the build tag mutant, the environment variable
// OUTBOX_MUTANT chooses one. scripts/mutants tries every one of them.
package mutant

// The mistakes. Every value is one for scripts/mutants, which reads them here.
const (
	EarlyEnqueue     = "early_enqueue"     // the fast path starts before the commit
	UnknownCommitted = "unknown_committed" // a commit whose answer was lost counts as one that succeeded
	SavepointKept    = "savepoint_kept"    // what was rolled back to a savepoint stays on the fast path
	MarkFirst        = "mark_first"        // a row is marked before it is published
	HotUnleased      = "hot_unleased"      // a row of the fast path is inserted without a lease
	NoLease          = "no_lease"          // a claim writes no lease
	SameClaimNo      = "same_claim_no"     // a claim does not raise the claim number
	Unfenced         = "unfenced"          // a failure is written whoever holds the row
	RepeatedGuess    = "repeated_guess"    // a guess whose answer was lost counts again
	NoHeadCheck      = "no_head_check"     // a claim takes any due row of a lane
	StaleHeads       = "stale_heads"       // a claim trusts what it read of a lane before it locked rows
	DeadPassed       = "dead_passed"       // a dead row does not block its lane
	UnguardedHot     = "unguarded_hot"     // the fast path does not look at the event before
	KeepLane         = "keep_lane"         // a lane goes on after a failure
	CrowdedLane      = "crowded_lane"      // two events of a lane are published at once
	WaitingLane      = "waiting_lane"      // a lane waits for an event that was given back
	StaleLease       = "stale_lease"       // a publish begins although the lease may be over
	ProbeKept        = "probe_kept"        // a probe that was given back counts as under way
	NoKeyLock        = "no_key_lock"       // producers do not wait for each other
	OutageAttempts   = "outage_attempts"   // an outage costs attempts
	UnwrittenSuspect = "unwritten_suspect" // the publish of a suspect is not written down before it begins
	CleanOpen        = "clean_open"        // the janitor deletes by age alone
)
