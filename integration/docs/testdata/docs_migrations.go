package page

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

var (
	ctx        context.Context
	repository *sqloutbox.Repository
)
