package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core/health"
)

// probeTimeout is how long a relay may take to answer. The health check of the Dockerfile waits
// longer.
const probeTimeout = 5 * time.Second

func (a *app) probeCommand() *cobra.Command {
	var listen string
	var ready bool
	c := &cobra.Command{
		Use:   "probe",
		Short: "Ask the relay on this machine how it is, as a container's health check does",
		Long: `probe asks /healthz of a relay that runs on this machine with --listen. It needs no database. Exit
code 3: the relay is unhealthy, or did not answer within 5 seconds.`,
		Example: "  outbox probe --listen :8080",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			listen = cmp.Or(listen, a.Getenv("OUTBOX_LISTEN"))
			host, port, err := net.SplitHostPort(listen)
			if err != nil {
				return usage("--listen %q: it is the address of the relay, such as :8080", listen)
			}
			if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
				host = "localhost"
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			ctx, cancel := context.WithTimeout(c.Context(), probeTimeout)
			defer cancel()
			return a.probe(ctx, "http://"+net.JoinHostPort(host, port)+path)
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "the value of --listen of the relay (default: $OUTBOX_LISTEN)")
	c.Flags().BoolVar(&ready, "ready", false, "ask /readyz in place of /healthz")
	return c
}

func (a *app) probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usage("--listen: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return exit(ExitUnhealthy, "the relay does not answer: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	var report health.Report
	if err := json.NewDecoder(http.MaxBytesReader(nil, res.Body, 1<<20)).Decode(&report); err != nil {
		return exit(ExitUnhealthy, "%s is no relay: it answers with status %d and no report", url, res.StatusCode)
	}
	if err := a.print(report, func() {
		for _, text := range append([]string{report.Status}, report.Problems...) {
			a.sayf("%s\n", text)
		}
	}); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return exit(ExitUnhealthy, "the relay is not well: %s", res.Status)
	}
	return nil
}
