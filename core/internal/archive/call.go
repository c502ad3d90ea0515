// Package archive calls the archives of applications.
package archive

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Call calls an archive, which is the field with that name of a configuration. A panic is an error,
// so that it does not end the loop that cleans up.
func Call[T any](ctx context.Context, name string, archive func(ctx context.Context, rows []T) error, rows []T,
) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = core.NewPanicError(recover())
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	err = archive(ctx, rows)
	returned = true
	return err
}
