module headwater

go 1.24
