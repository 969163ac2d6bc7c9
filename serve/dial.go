package serve

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// Control is a connection to a running owner for questions and commands. It attaches no memory.
type Control struct{ peer *wire.Peer }

// Dial connects to the owner at an address "unix:PATH". name is how the owner's log calls this program.
func Dial(ctx context.Context, address, name string) (*Control, error) {
	p, _, err := wire.Dial(ctx, address, name, wire.DefaultTimeout, nil)
	if err != nil {
		return nil, fmt.Errorf("serve: %s: %w", address, err)
	}
	return &Control{p}, nil
}

// Close ends the connection. Requests under way are cancelled.
func (c *Control) Close() { c.peer.Close() }

// Status returns the owner's statistics and clients.
func (c *Control) Status(ctx context.Context) (*Status, error) {
	s := new(Status)
	if err := c.call(ctx, wire.Status, nil, s); err != nil {
		return nil, err
	}
	return s, nil
}

// ChangeTable has the owner add, replace or drop a table. It returns what the owner has done.
func (c *Control) ChangeTable(ctx context.Context, change TableChange) (string, error) {
	var a wire.TableAnswer
	err := c.call(ctx, wire.ChangeTable, change, &a)
	return a.Text, err
}

// Explain returns for each row of a table where it is, or why it is not cached. A table is named by its number.
func (c *Control) Explain(ctx context.Context, table int, rows []int64) ([]Explanation, error) {
	var all []Explanation
	err := c.call(ctx, wire.Explain, wire.RowsRequest{Table: table, Rows: rows}, &all)
	return all, err
}

// Explanation says where a row is, or why it is not cached.
type Explanation = statjson.Explanation

// Refresh has the owner run a refresh cycle.
func (c *Control) Refresh(ctx context.Context) error { return c.call(ctx, wire.Refresh, nil, nil) }

// SetBudget sets the budget of each device in bytes.
func (c *Control) SetBudget(ctx context.Context, bytes int64) error {
	return c.call(ctx, wire.SetBudget, wire.BudgetRequest{Bytes: bytes}, nil)
}

// Snapshot has the owner write a snapshot to a path of its own, or to the one that it is configured with if path is "".
func (c *Control) Snapshot(ctx context.Context, path string) error {
	return c.call(ctx, wire.Snapshot, wire.SnapshotRequest{Path: path}, nil)
}

// Drain has the owner take no further clients. It returns when the last one has left, or when ctx ends.
func (c *Control) Drain(ctx context.Context) error { return c.call(ctx, wire.Drain, nil, nil) }

func (c *Control) call(ctx context.Context, method string, body, result any) error {
	_, err := c.peer.Call(ctx, method, body, nil, result)
	return err
}
