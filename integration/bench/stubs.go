package main

import "context"

const historyEvents = 20_000

func runProducer(ctx context.Context, e *env, s *Section) error { return nil }
func runLatency(ctx context.Context, e *env, s *Section) error  { return nil }
func runSteady(ctx context.Context, e *env, s *Section) error   { return nil }
func runHistory(ctx context.Context, e *env, s *Section) error  { return nil }
