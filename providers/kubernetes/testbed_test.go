package kubernetes

import _ "github.com/eltrain/eltrain/testbed"
