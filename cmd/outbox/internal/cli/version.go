package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Tables   int    `json:"tables"`
}

// thisVersion describes the program that runs.
func thisVersion() (v versionInfo) {
	v.Version, v.Go = "(devel)", runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if all, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: core.Postgres}); err == nil && len(all) > 0 {
		v.Tables = all[len(all)-1].Version
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the program and of the tables that it makes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			return a.print(v, func() {
				revision := ""
				if v.Revision != "" {
					revision = ", revision " + v.Revision
				}
				a.sayf("outbox %s%s, tables of version %d, %s\n", v.Version, revision, v.Tables, v.Go)
			})
		},
	}
}
