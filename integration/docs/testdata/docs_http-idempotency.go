package page

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	ctx context.Context
	db  *sql.DB
	mux *http.ServeMux
)

func principal(r *http.Request) string { return "" }

func auth(next http.Handler) http.Handler { return next }

func book(ctx context.Context, w http.ResponseWriter, tx core.Tx) {}
