// Package drive measures how fast rows are read from pages on a drive, beside a plain reader: a program that does nothing but read the
// same pages, with as many reads at once. Nothing in it is safe for concurrent use.
package drive
