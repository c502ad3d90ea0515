package page

import "context"

var ctx context.Context
